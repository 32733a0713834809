"""What a page names exists: every command, option, file, setting and call, resolved without running anything."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pages import checking, playing
from pages.reading import (
    EXAMPLES,
    GROUPS,
    MARKDOWN,
    PROGRAMS,
    ROOT,
    SHELL,
    Page,
    Place,
    markdown,
    pages,
    sources,
)

ALL = pages()
NAMES = [page.name for page in ALL]


@pytest.fixture(autouse=True)
def _tests(pytestconfig: pytest.Config) -> None:
    checking.set_pytest_config(pytestconfig)


def say(complaints: list[str]) -> None:
    assert not complaints, "\n".join(["pages name what there is not:", *complaints])


@pytest.mark.parametrize("page", [*ALL, checking.helps(), sources()], ids=[*NAMES, "help", "src"])
def test_every_command_line_can_be_read_by_its_command(page: Page) -> None:
    say([f"{line}: {said}" for line in page.lines if (said := checking.complaint_about(line))])


def test_every_command_has_an_example_in_its_help_that_is_its_own() -> None:
    examples = {line.place.page: line.text for line in checking.helps().lines}

    for names in checking.commands():
        title = f"sensorgrid {' '.join(names)}"
        assert examples.get(f"{title} --help", "").startswith(title), f"{title}: found no example in its help"


@pytest.mark.parametrize("page", ALL, ids=NAMES)
def test_every_option_in_a_sentence_belongs_to_a_command_of_the_page(page: Page) -> None:
    complaints = []
    lines = checking.named_on(page)
    for span in page.spans:
        if span.text.startswith("--"):
            before = [line for line in lines if line.place.number <= span.place.number]
            nearest = [*reversed(before), *(line for line in lines if line not in before)]
            if said := checking.about_options(span.text.split(), nearest):
                complaints.append(f"{span.place}: {span.text}: {said}")
    say(complaints)


def test_every_option_in_a_help_text_is_one_of_a_command() -> None:
    known = {option for command in checking.commands().values() for option in checking.options_of(command)}
    complaints = []
    for names, command in checking.commands().items():
        texts = [re.sub(r"Example: .*", "", command.help or "", flags=re.S)]
        texts += [one.help or "" for one in command.params if hasattr(one, "help")]
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(texts)):
            if option not in known:
                title = f"sensorgrid {' '.join(names)} --help"
                complaints.append(f"{title}: {option}: found no such option{checking.near(option, known)}")
    say(complaints)


@pytest.mark.parametrize("page", ALL, ids=NAMES)
def test_no_command_is_misspelt_so_that_nobody_took_it_for_one(page: Page) -> None:
    """`sensorgird up`, `pipelin run`."""
    complaints = []
    firsts = [(span.place, span.text) for span in page.spans if " " in span.text]
    for block in page.blocks:
        if block.language in SHELL:
            lines = enumerate(block.text.split("\n"), block.place.number)
            firsts += [(Place(block.place.page, number), text) for number, text in lines if text.strip()]
    known = (*PROGRAMS, *GROUPS)
    for place, text in firsts:
        first = text.split()[0]
        if first not in known and (
            meant := checking.near(first, ("sensorgrid", "python", "pytest", *GROUPS))
        ):
            complaints.append(f"{place}: {text}: found no command {first!r}{meant}")
    say(complaints)


@pytest.mark.parametrize("page", ALL, ids=NAMES)
def test_every_file_that_a_page_names_is_there(page: Page) -> None:
    named = [span for span in page.spans if checking.is_file(span.text)]
    complaints = [f"{span.place}: {said}" for span in named if (said := checking.about_file(span))]
    folder = (ROOT / page.name).parent
    for link in page.links:
        if "://" not in link.text:
            target, _, anchor = link.text.partition("#")
            path = folder / target if target else ROOT / page.name
            if not path.exists():
                near = checking.near(target, checking.files())
                complaints.append(f"{link.place}: found no file {link.text!r}{near}")
            elif anchor and anchor not in anchors_of(path):
                near = checking.near(anchor, anchors_of(path))
                complaints.append(f"{link.place}: found no heading {link.text!r}{near}")
    say(complaints)


def anchors_of(path: Path) -> list[str]:
    heads = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    return [re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads]


@pytest.mark.parametrize("page", ALL, ids=NAMES)
def test_every_setting_that_a_page_names_is_one(page: Page, tmp_path: Path) -> None:
    complaints = []
    for span in page.spans:
        if re.fullmatch(r"\[\[?[a-z_.]+\]?\]", span.text):
            said = checking.about_table(span.text)
        elif re.fullmatch(r"[a-z_]+ = (\".*\"|[\d.]+|true|false)", span.text):
            said = checking.about_assignment(span.text)
        else:
            continue
        complaints += [f"{span.place}: {span.text}: {said}"] if said else []
    for number, line in enumerate(page.text.splitlines(), 1):
        for name in re.findall(r"\bSENSORGRID_\w+", line):
            said = checking.about_variable(name)
            complaints += [f"{page.name}:{number}: {said}"] if said else []
    say(complaints)


def configurations() -> Iterator[tuple[Place, str, str]]:
    """TOML on pages: place, name of the file, text."""
    for path in MARKDOWN:
        for block in markdown(path).blocks:
            if block.language == "toml":
                parts = re.split(r"^# (\S+\.toml)$", block.text, flags=re.M)
                for name, text in zip(["grid.toml", *parts[1::2]], parts[::2], strict=True):
                    if text.strip():
                        yield block.place, name, text


@pytest.mark.parametrize(("place", "name", "text"), list(configurations()), ids=lambda value: str(value)[:40])
def test_every_configuration_on_a_page_is_accepted(
    place: Place, name: str, text: str, tmp_path: Path
) -> None:
    import tomllib

    from sensorgrid.pipeline.sources.mapping import mapping_of

    if name == "grid.toml":
        said = checking.about_settings(text, tmp_path)
        assert said is None, f"{place}: {said}"
    else:
        mapping_of(tomllib.loads(text), name=name, directory=tmp_path)


def test_the_page_names_every_mapping_that_is_shipped() -> None:
    (listed,) = re.findall(r"# shipped: (.*); or a file", (ROOT / "docs" / "pipeline.md").read_text())
    shipped = {p.stem for p in (checking.SOURCE / "pipeline" / "sources" / "mappings").glob("*.toml")}

    assert set(listed.split(", ")) == shipped


def test_the_table_of_network_has_all_its_keys_and_their_defaults() -> None:
    from sensorgrid.configuration.network import NetworkSettings

    rows = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \|([^|]*)\|", table_after("docs/runtime.md", "| key | default |"), re.M
    )
    named = [key.strip("`") for keys, _ in rows for key in keys.split(", ")]

    assert sorted(named) == sorted(NetworkSettings.model_fields)
    spelt = {"100e6": 100e6, "false": False, "16 MiB": 16 << 20, "5 s": 5.0}
    absent = {"tls"}  # no table at all
    usual = NetworkSettings()
    for keys, defaults in rows:
        if defaults.strip():
            for key, default in zip(keys.split(", "), defaults.strip().split(", "), strict=True):
                found, said = getattr(usual, key.strip("`")), default.strip().strip("`")
                if key.strip("`") in absent:
                    assert (found, said) == (None, "none")
                    continue
                assert found == spelt.get(said, said) or str(found) == said, (
                    f"docs/runtime.md: {key}: found {said}"
                )


def table_after(page: str, header: str) -> str:
    """The rows of a table."""
    _, _, rest = (ROOT / page).read_text().partition(header)
    assert rest, f"{page}: found no table {header}"
    return rest.partition("\n\n")[0]


CLIENT = ("README.md", "CHANGELOG.md", "docs/client.md", "docs/relays.md", "examples/README.md")
"""pages on which `grid` and `stream` are those of the client"""


@pytest.mark.parametrize("page", ALL, ids=NAMES)
def test_every_call_and_module_that_a_page_names_is_there(page: Page) -> None:
    complaints = []
    for span in page.spans:
        if re.fullmatch(r"sensorgrid(\.\w+)+", span.text):
            said = checking.about_module(span.text)
        elif (
            page.name in CLIENT
            and not span.text.endswith((".py", ".toml"))
            and re.match(r"(grid|stream|sensorgrid|Query|Grid|connect|aconnect)[.(]", span.text)
        ):
            said = checking.about_python(span.text)
        else:
            continue
        complaints += [f"{span.place}: {span.text}: {said}"] if said else []
    say(complaints)


def test_no_example_is_without_a_test() -> None:
    """A test names it, or a line with it is run in this folder."""
    own = Path(__file__).parent
    tests = "\n".join(p.read_text() for p in (ROOT / "tests").rglob("*.py") if own not in p.parents)
    typed = {word for line in playing.played() for word in line.text.split()}
    listed = (EXAMPLES / "README.md").read_text()
    for path in sorted(EXAMPLES.iterdir()):
        if path.suffix in (".py", ".toml"):
            named = re.search(rf"\b{re.escape(path.name)}\b", tests)
            assert named or f"examples/{path.name}" in typed, (
                f"examples/{path.name}: found no test that runs it"
            )
            assert f"`{path.name}`" in listed, f"examples/README.md: found no word of {path.name}"
