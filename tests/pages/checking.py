"""Whether what a page says exists: commands, options, arguments, files, settings, names of the interface.

A check gives a complaint, or nothing. Commands are read by their own parsers and not invoked.
"""

import argparse
import ast
import difflib
import importlib
import inspect
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import TypeAdapter, ValidationError

import sensorgrid
from pages.reading import ROOT, Line, Page, Place, Span, program_of
from sensorgrid.cli.main import app
from sensorgrid.client.sync import Client, Stream
from sensorgrid.configuration.base import SettingsError
from sensorgrid.pipeline.settings import PipelineSettings, settings_of

SOURCE = ROOT / "src" / "sensorgrid"
PLACEHOLDERS = {
    "FILE": "grid.toml", "GRID.TOML": "grid.toml", "FILE:NAME": "networks.json:one", "FOLDER": "here", "DIR": "here",
    "N": "1", "A": "1", "B": "8", "C": "16", "A-B": "1-2", "URL": "ws://localhost:7400", "MASTER": "local[2]",
    "TIME": "2026-03-01T00:00Z", "SECONDS": "5", "NAME": "air_temperature",
}  # fmt: skip
"""what stands for something, with something"""
FOREIGN = ("mosquitto", "nats-server", "jq")
"""programs of others: that they are called so is all that is known of them here"""
READERS_OWN = {"grid.toml", "mine.toml"}
"""files that the reader of a page writes"""
LAKE = {"letters/", "ledger/", "sensors/", "reports/", "tiles/", "waiting/", "lake.waiting/", "lakes/"}
"""folders that the pipeline makes"""


def near(found: str, known: Iterable[str]) -> str:
    """What may have been meant."""
    close = difflib.get_close_matches(found, list(known), 3, 0.6)
    return f", did you mean {' or '.join(close)}?" if close else ""


# Commands


@cache
def root() -> Any:
    return typer.main.get_command(app)


@cache
def commands() -> dict[tuple[str, ...], Any]:
    """All commands by their names; groups are not among them."""

    def below(names: tuple[str, ...], one: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        inside = getattr(one, "commands", None)
        if inside is None:
            yield names, one
        for name, each in (inside or {}).items():
            yield from below((*names, name), each)

    return dict(below((), root()))


def helps() -> Page:
    """The examples in the help of every command."""
    page = Page("--help")
    for names, command in commands().items():
        place = Place(f"sensorgrid {' '.join(names)} --help", 1)
        for found in re.finditer(r"Example: (sensorgrid .+?)(?:\n\s*\n|\Z)", command.help or "", re.S):
            page.lines.append(Line(place, " ".join(found[1].split()), True))
    return page


def options_of(command: Any) -> set[str]:
    found = {
        text for one in command.params for text in (*one.opts, *one.secondary_opts) if text.startswith("-")
    }
    return found | {"--help", "-h"}


def alternatives(text: str) -> list[str]:
    """`status|map grid.toml` and `run | backfill` as lines of their own; a pipe stays as it is."""
    words = text.split()
    spaced = [part.strip() for part in text.split(" | ")]
    if len(spaced) > 1 and all(re.fullmatch("[a-z-]+", part) for part in spaced[1:]):
        ahead = spaced[0].split()[:-1]
        return [spaced[0], *(" ".join([*ahead, part]) for part in spaced[1:])]
    for at, word in enumerate(words):
        if re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", word):
            return [" ".join([*words[:at], one, *words[at + 1 :]]) for one in word.split("|")]
    return [text]


def parts_of(text: str) -> list[list[str]]:
    """A line of a shell as the words of each of its commands."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;"):
            found.append([])
        elif word not in ("…", "..."):
            found[-1].append(PLACEHOLDERS.get(word, word))
    return [words for words in found if words]


def complaint_about(line: Line) -> str | None:
    """What is wrong with a command line."""
    for text in alternatives(line.text):
        for words in parts_of(text):
            if said := _about(words, line.whole):
                return said
    named = re.findall(r"(?<!\S)\(?(--[a-z][a-z-]*)", line.comment)
    return about_options(named, [line]) if named else None


def _about(words: list[str], whole: bool) -> str | None:
    program, rest = program_of(words[0]), words[1:]
    if program == "sensorgrid":
        return about_command(rest, whole) or _about_files(rest)
    if program in ("python", "python3") and rest[:1] == ["-m"]:
        return None if rest[1:2] == ["venv"] else _about(rest[1:], whole)
    if program in ("python", "python3"):
        return about_script(rest)
    if program == "pip":
        return about_extras(rest)
    if program == "pytest":
        return about_tests(rest)
    if program in FOREIGN:
        return None
    return f"found no program {program!r}{near(program, ('sensorgrid', 'python', 'pytest', *FOREIGN))}"


def command_of(words: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The names of a command, and the rest."""
    names: tuple[str, ...] = ()
    one = root()
    for word in words:
        if word not in getattr(one, "commands", {}):
            break
        names, one = (*names, word), one.commands[word]
    return names, list(words[len(names) :])


def about_command(words: Sequence[str], whole: bool) -> str | None:
    """What is wrong with what follows `sensorgrid`."""
    names, rest = command_of(words)
    if names not in commands():
        group = root()
        for name in names:
            group = group.commands[name]
        title = " ".join(("sensorgrid", *names))
        if not rest:
            return (
                None if not whole else f"found {title!r} alone, expected one of {', '.join(group.commands)}"
            )
        if rest[0].startswith("-"):
            known = options_of(group)
            return None if rest[0] in known else f"found no option {rest[0]!r}{near(rest[0], known)}"
        return f"found no command {rest[0]!r} in {title!r}{near(rest[0], group.commands)}"
    if not rest and not whole:
        return None
    return about_arguments(names, rest)


def about_arguments(names: tuple[str, ...], rest: Sequence[str]) -> str | None:
    """What the command's own parser says."""
    command = commands()[names]
    unknown = [w.partition("=")[0] for w in rest if re.match(r"--?[a-z]", w)]
    unknown = [w for w in unknown if w not in options_of(command)]
    if unknown:
        return f"found no option {unknown[0]!r} of {' '.join(names)!r}{near(unknown[0], options_of(command))}"
    try:
        command.make_context(" ".join(names), list(rest))
    except Exception as error:  # click's, or the copy of click in typer, whichever there is
        if type(error).__name__ == "Exit":  # --help
            return None
        if not hasattr(error, "format_message"):
            raise
        return f"{' '.join(names)}: {error.format_message()}"
    return None


def _about_files(words: Sequence[str]) -> str | None:
    for word in words:
        if re.match(r"(examples|docs|tests|src)/", word) and not (ROOT / word).exists():
            return f"found no file {word!r}{near(word, files())}"
    return None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


_KINDS = {"int": int, "float": float, "Path": Path}


def parser_of(script: Path) -> argparse.ArgumentParser:
    """The options of a script, as its source adds them."""
    parser = _Parser(script.name, exit_on_error=False)
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            kinds = {k.arg: k.value for k in node.keywords if k.arg in ("type", "action", "nargs", "choices")}
            given: dict[str, Any] = {
                name: _KINDS[value.id] if isinstance(value, ast.Name) else ast.literal_eval(value)
                for name, value in kinds.items()
                if name is not None
            }
            parser.add_argument(*(ast.literal_eval(name) for name in node.args), **given)
    return parser


def about_script(words: Sequence[str]) -> str | None:
    """What is wrong with what follows `python`."""
    script = ROOT / words[0]
    if not script.is_file():
        return f"found no file {words[0]!r}{near(words[0], files())}"
    parser = parser_of(script)
    try:
        parser.parse_args(list(words[1:]))
    except (ValueError, argparse.ArgumentError) as error:
        known = [text for action in parser._actions for text in action.option_strings]
        wrong = next((w for w in words if w.startswith("-") and w.partition("=")[0] not in known), "")
        return f"{words[0]}: {error}{near(wrong, known)}"
    return None


def about_extras(words: Sequence[str]) -> str | None:
    """What is wrong with what follows `pip`."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        if found := re.fullmatch(r"(?:\.|sensorgrid)\[(.*)\]", word):
            for extra in found[1].split(","):
                if extra not in known:
                    return f"found no extra {extra!r}{near(extra, known)}"
    return None


_pytest_config: Any = None


def set_pytest_config(config: Any) -> None:
    """Who knows the options of the test command."""
    global _pytest_config
    _pytest_config = config


def about_tests(words: Sequence[str]) -> str | None:
    """What is wrong with what follows `pytest`."""
    for word in words:
        if word.startswith("--"):
            try:
                _pytest_config.getoption(word.partition("=")[0])
            except ValueError:
                known = re.findall(
                    r'addoption\(\s*"(--[\w-]+)"', (ROOT / "tests" / "conftest.py").read_text()
                )
                return f"found no option {word!r} of the tests{near(word, known)}"
        elif "/" in word and not (ROOT / word.partition("::")[0]).exists():
            return f"found no file {word!r}{near(word, files())}"
    return None


# Options that stand alone


def named_on(page: Page) -> list[Line]:
    """The command lines of a page, in the order in which one reads them."""
    return sorted(page.lines, key=lambda line: line.place.number)


def about_options(words: Sequence[str], candidates: Iterable[Line]) -> str | None:
    """Options belong to a command that the page names: the nearest that has all of them takes them."""
    found = with_options(words, candidates)
    return found if isinstance(found, str) else None


def with_options(words: Sequence[str], candidates: Iterable[Line]) -> list[str] | str:
    """The nearest command that takes these options, with them; or a complaint."""
    words = [PLACEHOLDERS.get(word, word) for word in words]
    wanted = [w.partition("=")[0] for w in words if w.startswith("--")]
    known: set[str] = set()
    refused = None
    for line in candidates:
        for text in alternatives(line.text):
            for part in parts_of(text):
                options = _options_of_part(part)
                known |= options
                if set(wanted) <= options:
                    whole = _with(part, [] if len(words) == 1 else words)  # `--out` alone is a name
                    refused = _about(whole, True)
                    if refused is None:
                        return whole
    if refused is not None:
        return refused
    wrong = next((w for w in wanted if w not in known), " ".join(wanted))
    return f"found no command on the page with {wrong}{near(wrong, known)}"


def _options_of_part(words: list[str]) -> set[str]:
    program, rest = program_of(words[0]), words[1:]
    if program == "sensorgrid":
        names, _ = command_of(rest)
        return options_of(commands()[names] if names in commands() else root())
    if program.startswith("python") and rest and (ROOT / rest[0]).is_file():
        return {text for action in parser_of(ROOT / rest[0])._actions for text in action.option_strings}
    return set()


def _with(part: list[str], words: Sequence[str]) -> list[str]:
    """A command of the page with other options."""
    if program_of(part[0]) != "sensorgrid":
        return [*part[:2], *words]
    names, _ = command_of(part[1:])
    needed = [PLACEHOLDERS["FILE"] for one in commands().get(names, root()).params if one.required]
    return ["sensorgrid", *names, *needed, *words]


# Files


@cache
def files() -> tuple[str, ...]:
    """The files of the project, from its root."""
    kept = (".md", ".py", ".toml", ".c", ".csv", ".png", ".html")
    found = [
        str(path.relative_to(ROOT))
        for folder in ("docs", "examples", "src", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kept and "__pycache__" not in path.parts
    ]
    return (*found, *(path.name for path in ROOT.iterdir() if path.is_file()))


@cache
def folders() -> frozenset[str]:
    return frozenset(str(parent) for file in files() for parent in Path(file).parents if str(parent) != ".")


def is_file(text: str) -> bool:
    """Whether a piece of code names a file or a folder of the project."""
    if re.fullmatch(r"[\w-]+\.toml", text):
        return text not in READERS_OWN
    if re.fullmatch(r"[\w./-]+\.(py|md|c)", text):
        return True
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/", text):
        return text not in LAKE
    return re.match(r"(src|tests|docs|examples)/[\w/.-]+$", text) is not None


def about_file(span: Span) -> str | None:
    """A file is named from the root, from the package, or from the folder of the one before it."""
    text = span.text.rstrip("/")
    known = {*files(), *folders()}
    if any(at in known for at in (text, f"src/sensorgrid/{text}")):
        return None
    ending = [one for one in known if one.endswith(f"/{text}")]
    before = [one for one in span.before if is_file(one)]
    if before and "/" not in text and "/" in before[-1].rstrip("/"):
        ahead = before[-1].rstrip("/")
        ahead = ahead if before[-1].endswith("/") else ahead.rpartition("/")[0]
        around = (ahead, ahead.rpartition("/")[0])
        ending = [one for one in ending if any(one.endswith(f"{at}/{text}".lstrip("/")) for at in around)]
    if ending:
        return None
    names = {one.rpartition("/")[2] for one in known}
    place = next((one for one in known if one.endswith(f"/{text.rpartition('/')[2]}")), "")
    return f"found no file {span.text!r}" + (f"; there is {place}" if place else near(text, {*known, *names}))


# Settings


def about_settings(text: str, folder: Path) -> str | None:
    """What the reader of configurations says about a piece of one."""
    try:
        settings_of(tomllib.loads(text), "page", folder)
    except (SettingsError, tomllib.TOMLDecodeError) as error:
        return str(error)
    return None


def tables() -> dict[str, Any]:
    """The tables of a configuration, by their names, as models; `[[sources]]` has one for each kind."""

    def below(name: str, annotation: Any) -> Iterator[tuple[str, Any]]:
        for model in models_in(annotation):
            yield name, model
            for key, one in model.model_fields.items():
                yield from below(f"{name}.{key}", one.annotation)

    found: dict[str, Any] = {}
    for key, one in PipelineSettings.model_fields.items():
        for name, model in below(key, one.annotation):
            found.setdefault(name, []).append(model)
    return found


def models_in(annotation: Any) -> Iterator[Any]:
    """The models in an annotation such as `tuple[A | B, ...] | None`."""
    if inspect.isclass(annotation) and hasattr(annotation, "model_fields"):
        yield annotation
    else:
        for one in getattr(annotation, "__args__", ()):
            yield from models_in(one)


def about_table(text: str) -> str | None:
    """`[network]`, `[[sources]]`, `[network.tls]`, `[quality.attributes.NAME]`."""
    name = text.strip("[]")
    known = tables()
    if name in known or name.rpartition(".")[0] in known:
        return None
    return f"found no table {text}{near(name, known)}"


def about_assignment(text: str) -> str | None:
    """`relays = "tree"`: some table has this key and takes this value."""
    content = tomllib.loads(text)
    (key,) = content
    models = [model for each in tables().values() for model in each if key in model.model_fields]
    if key in PipelineSettings.model_fields:
        return None
    if not models:
        every = {k for each in tables().values() for model in each for k in model.model_fields}
        return f"found no key {key!r} of any table{near(key, every)}"
    for model in models:
        wanted = model.model_fields[key]
        try:
            TypeAdapter(
                Annotated[(wanted.annotation, *wanted.metadata, "as the field has it")]
            ).validate_python(content[key])
        except ValidationError as error:
            refused = error.errors()[0]["msg"]
        else:
            return None
    return f"found {text}, which no table takes: {refused}"


def about_variable(name: str) -> str | None:
    """`SENSORGRID_SPARK__MASTER`: a setting, or a variable that the code asks for."""
    path = name.removeprefix("SENSORGRID_").lower().split("__")
    known = tables()
    if len(path) == 2 and any(path[1] in model.model_fields for model in known.get(path[0], ())):
        return None
    if len(path) == 1 and path[0] in PipelineSettings.model_fields:
        return None
    asked = {
        found
        for file in SOURCE.rglob("*.py")
        for found in re.findall(r'"(SENSORGRID_\w+)"', file.read_text())
    }
    return None if name in asked else f"found no variable {name}{near(name, asked)}"


# The Python interface

SUBJECTS: dict[str, Any] = {
    "grid": Client, "stream": Stream, "Query": sensorgrid.Query, "Grid": sensorgrid.Grid, "sensorgrid": sensorgrid,
    "connect": sensorgrid.connect, "aconnect": sensorgrid.aconnect,
}  # fmt: skip
"""what names of the pages stand for"""


def about_python(text: str) -> str | None:
    """`grid.stream(query, after=tick)`: the name is there, and takes these arguments."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    call = node if isinstance(node, ast.Call) else None
    names = ast.unparse(call.func if call else node).split(".")
    if isinstance(call and call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):  # type: ignore[union-attr]
        return about_python(ast.unparse(call.func.value))  # type: ignore[union-attr]
    if names[0] not in SUBJECTS:
        return None
    found = SUBJECTS[names[0]]
    for name in names[1:]:
        if not hasattr(found, name) and name not in getattr(found, "__dataclass_fields__", {}):
            return f"found no {name!r} in {found.__name__}{near(name, dir(found))}"
        found = getattr(found, name, None)
    if call is None or found is None:
        return None
    itself = (
        [None] if len(names) > 1 and inspect.isclass(SUBJECTS[names[0]]) and inspect.isfunction(found) else []
    )
    try:
        inspect.signature(found).bind_partial(
            *itself, *call.args, **{str(k.arg): k.value for k in call.keywords}
        )
    except TypeError as error:
        return f"{'.'.join(names)}: {error}"
    return None


def about_module(text: str) -> str | None:
    """`sensorgrid.pipeline.lake.folder`, `sensorgrid.SensorGridError`."""
    module, _, name = text.rpartition(".")
    for path, left in ((text, ""), (module, name)):
        try:
            found = importlib.import_module(path)
        except ImportError:
            continue
        if not left or hasattr(found, left):
            return None
    return f"found no {text}"
