"""What the pages say: command lines, options, files, settings and code, each with its page and line.

Markdown pages, the comments and docstrings of the examples, the help of every command, and what the code itself tells
people to type. Nothing here knows which of it is right.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MARKDOWN = (
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    EXAMPLES / "README.md",
)
SHELL = ("", "sh", "bash", "console", "text")
"""languages of blocks in which command lines stand; in those without one, beside other things"""
PROGRAMS = ("sensorgrid", "python", "python3", "pytest", "pip", "mosquitto", "nats-server", "jq")
GROUPS = ("bench", "experiment", "pipeline")
"""of `sensorgrid`: in the text of a page, `pipeline run` stands for `sensorgrid pipeline run`"""


@dataclass(frozen=True)
class Place:
    page: str
    number: int

    def __str__(self) -> str:
        return f"{self.page}:{self.number}"


@dataclass(frozen=True)
class Line:
    """A command line."""

    place: Place
    text: str
    """as one would type it, without what is said about it"""
    whole: bool
    """whether it is meant to be typed as it is; in a sentence, `sensorgrid broker` is only a name"""
    comment: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(frozen=True)
class Span:
    """A piece of `code` in a sentence or a table."""

    place: Place
    text: str
    before: tuple[str, ...] = ()
    """the pieces before it in the same paragraph or row of a table"""


@dataclass(frozen=True)
class Block:
    """Code between fences, or indented."""

    place: Place
    language: str
    text: str


@dataclass
class Page:
    name: str
    blocks: list[Block] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    links: list[Span] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    text: str = ""

    def __repr__(self) -> str:
        return self.name


def program_of(text: str) -> str:
    """What the first word starts, wherever it lies."""
    words = text.split()
    return words[0].rpartition("/")[2] if words else ""


@cache
def markdown(path: Path) -> Page:
    """A page in Markdown."""
    page = Page(str(path.relative_to(ROOT)), text=path.read_text())
    paragraphs: list[tuple[int, str]] = []
    rest = list(enumerate(page.text.splitlines(), 1))
    blank = True
    while rest:
        number, text = rest.pop(0)
        if fence := re.match(r"(\s*)```\s*(\w*)\s*$", text):
            inside = []
            while rest and not re.match(r"\s*```\s*$", rest[0][1]):
                inside.append(rest.pop(0)[1].removeprefix(fence[1]))
            assert rest, f"{page.name}:{number}: found no end of this block, expected ```"
            rest.pop(0)
            page.blocks.append(Block(Place(page.name, number + 1), fence[2], "\n".join(inside)))
            paragraphs.append((number, ""))
        elif blank and text.startswith("    ") and text.strip():
            inside = [text]
            while rest and rest[0][1].startswith("    "):
                inside.append(rest.pop(0)[1])
            page.blocks.append(Block(Place(page.name, number), "", "\n".join(t[4:] for t in inside)))
            paragraphs.append((number, ""))
        elif text.startswith("|"):
            paragraphs += [(number, ""), (number, text.replace(r"\|", "|")), (number, "")]
        else:
            paragraphs.append((number, "" if text.lstrip().startswith("#") else text))
        blank = not text.strip()
    for first, joined in _joined(paragraphs):
        page.spans += spans_of(joined, page.name, first)
        for link in re.finditer(r"\]\(([^)\s]+)\)", joined):
            page.links.append(Span(Place(page.name, first + joined[: link.start()].count("\n")), link[1]))
    for block in page.blocks:
        page.lines += lines_of_block(block)
    for span in page.spans:
        page.lines += line_of_span(span)
    return page


def _joined(numbered: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Paragraphs with the number of their first line."""
    first, inside = 0, list[str]()
    for number, text in [*numbered, (0, "")]:
        if text.strip():
            first = first if inside else number
            inside.append(text)
        elif inside:
            yield first, "\n".join(inside)
            inside = []


def spans_of(text: str, page: str, first: int) -> Iterator[Span]:
    """The pieces of `code` in a paragraph."""
    before: tuple[str, ...] = ()
    for found in re.finditer(r"(?<!`)(`+)([^`]+)\1(?!`)", text):
        inside = " ".join(found[2].split())
        yield Span(Place(page, first + text[: found.start()].count("\n")), inside, before)
        before = (*before, inside)


def lines_of_block(block: Block) -> Iterator[Line]:
    """The command lines of a block; if one of its lines is one, all are."""
    if block.language not in SHELL:
        return
    joined = _continued(block.text.split("\n"), block.place.number)
    if not any(program_of(text.removeprefix("$ ")) in PROGRAMS for _, text in joined):
        return
    for number, text in joined:
        bare, comment = parted(text.removeprefix("$ "))
        if bare:
            yield Line(Place(block.place.page, number), bare, True, comment)


def _continued(texts: list[str], first: int) -> list[tuple[int, str]]:
    """Lines with their numbers, those that end in a backslash joined with the next."""
    found: list[tuple[int, str]] = []
    open_ = False
    for number, text in enumerate(texts, first):
        bare = text.strip()
        if open_:
            found[-1] = (found[-1][0], f"{found[-1][1]} {bare.removesuffix(chr(92)).strip()}")
        elif bare:
            found.append((number, bare.removesuffix("\\").strip()))
        open_ = bare.endswith("\\")
    return found


def parted(text: str) -> tuple[str, str]:
    """A command line, and what is said about it: after `#`, or after some blanks."""
    bare, _, comment = re.sub(r"\s{2,}#?\s*|\s+#\s+|^#\s*", "\0", text, count=1).partition("\0")
    return bare.strip(), comment.strip()


def line_of_span(span: Span) -> Iterator[Line]:
    """The command line that a piece of code is, if it is one."""
    words = span.text.split()
    text = (
        f"sensorgrid {span.text}" if words[0] in GROUPS and len(words) > 1 and _name(words[1]) else span.text
    )
    if program_of(text) in PROGRAMS and len(text.split()) > 1:
        bare = re.fullmatch(r"sensorgrid( [a-z][a-z-]*)+( \| [a-z-]+)*", text) is not None
        yield Line(span.place, text, not bare)


def _name(text: str) -> bool:
    return re.fullmatch(r"[a-z|-]+", text) is not None


@cache
def example(path: Path) -> Page:
    """The docstrings and comments of a script, or the comments of a TOML file."""
    name, text = str(path.relative_to(ROOT)), path.read_text()
    page = Page(name, text=text)
    if path.suffix == ".py":
        said = [
            (node.lineno + offset, line)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value
            for offset, line in enumerate(node.value.splitlines())
        ]
    else:
        said = []
    said += [
        (number, found[1])
        for number, line in enumerate(text.splitlines(), 1)
        if (found := re.match(r"\s*#+ ?(.*)", line))
    ]
    for number, line in said:
        if program_of(line) in PROGRAMS and re.match(r"\s*[\w./-]+ [\w./-]", line):
            bare, comment = parted(line.strip())
            page.lines.append(Line(Place(name, number), bare.removesuffix("&").strip(), True, comment))
        page.spans += spans_of(line, name, number)
    for span in page.spans:
        page.lines += line_of_span(span)
    return page


@cache
def sources() -> Page:
    """What the code says about commands, in docstrings, comments and messages: pieces between backticks."""
    page = Page("src")
    for path in sorted((ROOT / "src").rglob("*.py")):
        for number, paragraph in enumerate(re.split(r"\n\s*\n", path.read_text())):
            del number
            for span in re.finditer(
                r"(?<!`)`(sensorgrid\s[^`{]+|(?:pipeline|bench|experiment)\s[^`{]+)`", paragraph
            ):
                place = Place(str(path.relative_to(ROOT)), _line(path, paragraph, span.start()))
                text = re.sub(r'"\s*\n\s*f?"|\s+', " ", span[1]).strip()
                page.lines += line_of_span(Span(place, re.sub(r"\s+", " ", text)))
    return page


def _line(path: Path, paragraph: str, offset: int) -> int:
    whole = path.read_text()
    return whole[: whole.index(paragraph) + offset].count("\n") + 1


def pages() -> list[Page]:
    """All that people read, but for the help."""
    found = [markdown(path) for path in MARKDOWN]
    return found + [example(path) for path in sorted(EXAMPLES.iterdir()) if path.suffix in (".py", ".toml")]
