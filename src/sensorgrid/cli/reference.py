"""`sensorgrid reference`: mapping keys, attributes, units and configuration keys as a page, made from the code.

Names, kinds and defaults are read from the classes themselves, and what a key means from the text that stands under
it in the source. So the page cannot say what the code does not: `docs/reference.md` is this command's output, and a
test compares them.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console

console = Console()
errors = Console(stderr=True)

_HEAD = """# Reference

For authors of mappings and configurations: every key, attribute and unit. Made from the code by
`sensorgrid reference --page docs/reference.md`; [pipeline.md](pipeline.md) explains what the keys are good for.
"""
_PLAIN = (
    (r"Annotated\[(\w+), .*?\](?=$| \|)", r"\1"),
    (r"tuple\[Sentinel, \.\.\.\]", "list of numbers and texts"),
    (r"tuple\[tuple\[str, float\], \.\.\.\]", "table of texts and numbers"),
    (r"tuple\[tuple\[str, str\], \.\.\.\]", "table of texts"),
    (r"tuple\[str, \.\.\.\]", "list of texts"),
    (r"tuple\[float, float, float, float\]", "four numbers"),
    (r"tuple\[tuple\[float, float\], \.\.\.\]", "list of pairs of numbers"),
    (r"tuple\[float, float\]", "two numbers"),
    (r"tuple\[int, int\]", "two whole numbers"),
    (r"tuple\[int, int, int\]", "three whole numbers"),
    (r"tuple\[(\w+), \.\.\.\]", r"list of \1"),
    (r"dict\[str, .*\]", "table"),
    (r"list of \w+Settings", "list of tables"),
    (r"Literal\[(.*?)\]", r"\1"),
    (r"\bstr\b", "text"),
    (r"\bfloat\b", "number"),
    (r"\bint\b", "whole number"),
    (r"\bbool\b", "true or false"),
    (r"\bDuration\b", "duration"),
    (r" \| None\b", ""),
    (r" \| ", " or "),
)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table."""

    name: str
    kind: str
    default: str
    """empty if it has none"""
    meaning: str


def reference(
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Write the page here instead of showing it.")
    ] = None,
) -> None:
    """Every key of mappings and configurations, every attribute and unit, as a page of Markdown.

    Example: sensorgrid reference --page reference.md
    """
    text = page_text()
    if page is None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)
        return
    page.write_text(text)
    errors.print(f"wrote {page}", style="dim")


def page_text() -> str:
    """The whole page."""
    parts = [_HEAD, *_mappings(), *_attributes(), *_units(), *_configuration()]
    return "\n".join(parts).rstrip() + "\n"


def keys_of(kind: type) -> dict[str, Key]:
    """The fields of a class, with the text under each in the source."""
    found: dict[str, Key] = {}
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    last, defaults = None, _defaults(kind)
    for line in body.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            last = line.target.id
            found[last] = Key(last, _plain(ast.unparse(line.annotation)), _shown(defaults.get(last)), "")
        elif isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and last is not None:
            meaning = " ".join(str(line.value.value).split())
            found[last] = Key(last, found[last].kind, found[last].default, meaning)
            last = None
        else:
            last = None
    return found


def _plain(kind: str) -> str:
    for pattern, instead in _PLAIN:
        kind = re.sub(pattern, instead, kind)
    return kind.replace("'", '"')


def _defaults(kind: Any) -> dict[str, Any]:
    """What a class takes where nothing is said."""
    if hasattr(kind, "model_fields"):
        return {name: field.default for name, field in kind.model_fields.items() if not field.is_required()}
    return {field.name: field.default for field in fields(kind)}


def _shown(value: Any) -> str:
    """A value as TOML writes it; empty where leaving out a key has no special meaning."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value:
        return f"'{value}'" if '"' in value else f'"{value}"'
    if isinstance(value, int | float):
        return f"{value:.12g}"
    if isinstance(value, tuple) and value:
        return "[" + ", ".join(_shown(part) for part in value) + "]"
    return ""


def _table(keys: list[Key]) -> list[str]:
    lines = ["| key | kind | default | meaning |", "|---|---|---|---|"]
    for key in keys:
        default = f"`{key.default}`" if key.default else ""
        cells = [f"`{key.name}`", key.kind, default, key.meaning]
        lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


# mappings


def _mappings() -> Iterator[str]:
    from sensorgrid.pipeline.sources.declaration import (
        OPERATORS,
        SHIPPED,
        Alias,
        Long,
        Mapping,
        Rule,
        StationColumns,
        Time,
        Value,
    )
    from sensorgrid.pipeline.sources.mapping import COMPASS

    top = keys_of(Mapping)
    shipped = ", ".join(f"`{path.stem}`" for path in sorted(SHIPPED.glob("*.toml")))
    yield "## Mappings"
    yield f"Shipped ones can be named without a path: {shipped}.\n"
    yield "At the top of the file:\n"
    names = "format columns optional header delimiter quote decimal encoding missing topic".split()  # noqa: SIM905
    yield from _table([top[name] for name in names])
    yield "### [sensor]\n"
    aliases = Key("aliases", "list of tables", "", "other names of sensors, by patterns: " + _meaning(Alias))
    yield from _table([_as("columns", top["sensor"]), aliases])
    yield "### [position]\n"
    yield from _table([top[name] for name in ("longitude", "latitude", "elevation", "elevation_unit")])
    yield "### [time]\n"
    time = keys_of(Time)
    yield from _table([_as("column", time["columns"]), time["format"], time["zone"]])
    yield "### [values.NAME]\nOne for each attribute of a wide record; NAME is a CF standard name.\n"
    yield from _table([_lookup(key) for name, key in keys_of(Value).items() if name != "attribute"])
    yield "### [record]\nFor long records, of one value each.\n"
    long = keys_of(Long)
    yield from _table(
        [_lookup(_as("fixed_attribute" if name == "fixed" else name, key)) for name, key in long.items()]
    )
    yield "### [lookups.NAME]\nA lookup table that several values may name. Every mapping knows these:\n"
    for name, pairs in COMPASS.items():
        yield f"- `{name}`: " + ", ".join(f"{text} {number:g}" for text, number in pairs) + "\n"
    yield "### [[rules]]\n"
    rule = keys_of(Rule)
    where = Key("where", "table", "", f"column = {{ {'/'.join(OPERATORS)} = number or text }}; all must hold")
    yield from _table([rule["missing"], where])
    yield "### [stations]\n"
    stations = keys_of(StationColumns)
    yield from _table(list(stations.values()))


def _as(name: str, key: Key) -> Key:
    return Key(name, key.kind, key.default, key.meaning)


def _lookup(key: Key) -> Key:
    if key.name != "lookup":
        return key
    return Key(key.name, "table, or the name of one", key.default, key.meaning)


def _meaning(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split())


# attributes and units


def _attributes() -> Iterator[str]:
    from sensorgrid.pipeline.ingest.attributes import KNOWN, Attribute

    meanings = keys_of(Attribute)
    names = [field.name for field in fields(Attribute) if field.name != "name"]
    yield "## Attributes"
    yield (
        "Others are welcome: nothing is assumed about them. Limits can be set in `[quality.attributes.NAME]`."
        " All numbers are in the canonical unit.\n"
    )
    yield from (f"- *{name}*: {meanings[name].meaning}" for name in names)
    yield "\n| attribute | " + " | ".join(names) + " |"
    yield "|---|" + "---|" * len(names)
    for attribute in KNOWN.values():
        cells = [_number(getattr(attribute, name)) for name in names]
        yield f"| `{attribute.name}` | " + " | ".join(cells) + " |"
    yield ""


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return " … ".join(_number(part) for part in value)
    return f"{value:g}" if isinstance(value, int | float) else str(value if value is not None else "")


def _units() -> Iterator[str]:
    from sensorgrid.model.units import CUSTOMARY, UNITS

    yield "## Units"
    yield "A value becomes *value × scale + offset* in the canonical unit. Maps show the customary one.\n"
    yield "| canonical | customary | spelling | scale | offset |"
    yield "|---|---|---|---|---|"
    for canonical, spellings in UNITS.items():
        groups: dict[tuple[float, float], list[str]] = {}
        for spelling, by in spellings.items():
            groups.setdefault(by, []).append(spelling)
        for (scale, offset), same in groups.items():
            written = ", ".join(f"`{name}`" for name in same)
            shown = CUSTOMARY[canonical][0] if canonical in CUSTOMARY else ""
            yield f"| `{canonical}` | {shown} | {written} | {scale:.9g} | {offset:.9g} |"
    yield ""


# configuration


def _configuration() -> Iterator[str]:
    from sensorgrid.pipeline.settings import AnySource, PipelineSettings

    yield "## Configuration"
    yield "A duration is a number of seconds, or a text such as `90s`, `10min`, `2h`, `7d`.\n"
    yield "At the top of the file:\n"
    top = keys_of(PipelineSettings)
    tables = {name: kind for name, kind in _tables(PipelineSettings).items() if name != "sources"}
    yield from _table([key for name, key in top.items() if name not in (*tables, "sources", "model_config")])
    for name, kind in tables.items():
        yield from _section(name, kind)
    for kind in get_args(get_args(AnySource)[0]):
        keys = keys_of(kind)
        yield f"### [[sources]] of kind {keys['kind'].kind}\n{_sentence(kind)}\n"
        yield from _table([key for key in keys.values() if key.name != "kind"])


def _section(name: str, kind: type) -> Iterator[str]:
    said = re.match(r"``(\[+.+?\]+)``", _meaning(kind))  # the class itself says where it stands in the file
    yield f"### {said[1] if said else f'[{name}]'}\n"
    inner = _tables(kind)
    # A key that may be a table or something else is also listed.
    yield from _table([key for key in keys_of(kind).values() if key.name not in inner or " or " in key.kind])
    for key, below in inner.items():
        yield from _section(f"{name}.{key}", below)


def _tables(kind: Any) -> dict[str, Any]:
    """Keys of a model that are tables themselves."""
    from pydantic import BaseModel

    found = {}
    for name, field in kind.model_fields.items():
        for part in _parts(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                found[f"{name}.NAME" if "dict[" in str(field.annotation) else name] = part
    return found


def _parts(annotation: Any) -> Iterator[Any]:
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for part in inner:
        yield from _parts(part)


def _sentence(kind: type) -> str:
    return _meaning(kind).split(". ")[0].rstrip(".") + "."
