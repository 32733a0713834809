"""Every piece of Python and every result on a page is of today: it runs, or has the fields that there are."""

import ast
import asyncio
import importlib
import re
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import sensorgrid
from net_thread import NetThread
from operator_lakes import make_lake
from pages.reading import ROOT, Block, Place, markdown, pages
from sensorgrid.client.sync import Client

BLOCKS = [block for page in pages() for block in page.blocks if block.language == "python"]
GRID = {"shape": [64, 32], "attributes": ["air_temperature", "eastward_wind", "northward_wind"]}
TICKS_S = 0.1


def block(page: str, number: int) -> Block:
    return [one for one in BLOCKS if one.place.page == page][number]


def test_no_code_is_forgotten() -> None:
    """The README's runs in test_house.py, the pipeline's in test_lines_pipeline.py, the others here."""
    found = [one.place.page for one in BLOCKS]

    pages = [
        "README.md",
        *["docs/client.md"] * 3,
        *["docs/operators.md"] * 2,
        *["docs/pipeline.md"] * 2,
        "docs/runtime.md",
        "docs/sensors.md",
    ]
    assert found == pages


def test_an_operator_is_evaluated_over_a_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_lake(tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}

    exec(block("docs/operators.md", 0).text, found)

    assert found["warm"].sizes == {"time": 8}
    assert 280 < float(found["warm"][-1]) < 290


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: str(block.place))
def test_code_can_be_compiled_and_what_it_imports_is_there(block: Block) -> None:
    tree = compile(block.text, str(block.place), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)

    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                assert hasattr(module, name.name), f"{block.place}: found no {name.name} in {node.module}"
        elif isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)


def test_sensors_are_asked_for_as_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with NetThread(tmp_path, grid=GRID) as net:
        code = block("docs/sensors.md", 0).text.replace("ws://localhost:7400", net.url())
        names: dict[str, Any] = {}

        exec(compile(code, "docs/sensors.md", "exec"), names)

        assert list(names["found"]) == []  # nothing has ever been gridded here
        assert names["found"].missing == {}


def test_an_operator_is_watched_as_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = block("docs/operators.md", 1).text.replace("print(", "said.append((", 1)
    source = source.replace("coverage.item())", "coverage.item()))")
    loop = compile(source, "docs/operators.md", "exec", ast.PyCF_ONLY_AST)
    (given,) = [node for node in ast.walk(loop) if isinstance(node, ast.For)]
    given.body.append(ast.parse("if len(said) == 2: break").body[0])
    said: list[tuple[Any, ...]] = []
    with NetThread(tmp_path, grid=GRID) as net:
        net.net.tick = int(time.time())
        net.publish_soon(TICKS_S, 400)
        for node in ast.walk(loop):
            if isinstance(node, ast.Constant) and node.value == "ws://localhost:7400":
                node.value = net.url()

        exec(compile(ast.fix_missing_locations(loop), "docs/operators.md", "exec"), {"said": said})

    assert [len(one) for one in said] == [4, 4]
    assert all(coverage == 1.0 for *_, coverage in said)


def test_the_client_page_begins_as_the_readme_does() -> None:
    assert block("docs/client.md", 0).text == block("README.md", 0).text


class Enough(Exception):  # noqa: N818
    """A model has had two steps."""


def test_the_asynchronous_client_runs_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = []

    class Model:
        async def step(self, field: xr.DataArray) -> None:
            fields.append(field)
            if len(fields) == 2:
                raise Enough

    code = compile(block("docs/client.md", 1).text, "docs/client.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    query = sensorgrid.Query("air_temperature", bbox=(-10, 35, 30, 60))
    with NetThread(tmp_path, grid=GRID) as net:
        monkeypatch.setenv("SENSORGRID_URL", net.url())
        net.net.tick = int(time.time())
        net.publish_soon(TICKS_S, 400)
        with pytest.raises(Enough):
            asyncio.run(eval(code, {"sensorgrid": sensorgrid, "query": query, "model": Model()}))

    assert [int(b["tick"]) - int(a["tick"]) for a, b in [fields]] == [1]


class Short:
    """A connection whose streams have two fields: a page's loop would never end."""

    def __init__(self, grid: Client) -> None:
        self.grid = grid

    def __getattr__(self, name: str) -> Any:
        return getattr(self.grid, name)

    def stream(self, *arguments: Any, **options: Any) -> Any:
        return islice(self.grid.stream(*arguments, **options), 2)


def test_a_model_gets_its_own_points_as_the_page_says(tmp_path: Path) -> None:
    points = {"latitude": np.linspace(40, 50, 5), "longitude": np.linspace(0, 20, 9)}
    dataset = xr.Dataset({"t": (("latitude", "longitude"), np.zeros((5, 9)))}, points)
    asked = []

    with NetThread(tmp_path, grid=GRID) as net, sensorgrid.connect(net.url()) as grid:
        net.net.tick = first = int(time.time())
        net.publish_soon(TICKS_S, 400)

        class Model:
            time = np.datetime64(first + 10, "s")

        names: dict[str, Any] = {
            "sensorgrid": sensorgrid, "grid": Short(grid), "dataset": dataset, "model": Model(), "box": (0, 40, 20, 50),
        }  # fmt: skip
        for statement in ast.parse(block("docs/client.md", 2).text).body:
            exec(compile(ast.Module([statement], []), "docs/client.md", "exec"), names)
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "query":
                asked.append(grid.explain(names["query"]))
        loops = [s for s in ast.parse(block("docs/client.md", 2).text).body if isinstance(s, ast.For)]

    assert len(asked) == 2
    assert len(loops) == 1
    field = names["field"]
    assert field.sizes == {"latitude": 5, "longitude": 9}
    assert np.array_equal(field["latitude"], dataset["latitude"])
    assert not np.isnan(field.values).any()


def test_the_sink_for_other_jobs_takes_the_options_of_the_page() -> None:
    """With Spark it runs in tests/pipeline/test_sink.py."""
    from sensorgrid.pipeline.delivery import sink

    said: dict[str, Any] = {"options": {}}

    class Spark:
        dataSource = property(lambda self: self)  # noqa: N815

        def register(self, source: Any) -> None:
            said["source"] = source

    class Tiles:
        writeStream = property(lambda self: self)  # noqa: N815

        def format(self, name: str) -> "Tiles":
            said["format"] = name
            return self

        def option(self, key: str, text: str) -> "Tiles":
            said["options"][key] = text
            return self

        def start(self) -> None:
            said["started"] = True

    exec(block("docs/runtime.md", 0).text, {"spark": Spark(), "tiles": Tiles()})

    assert said["started"]
    assert said["format"] == said["source"].name() == sink.FORMAT
    settings = sink.SinkOptions.of(said["options"])
    assert settings.spool == said["options"]["spool"]
    assert set(said["options"]) <= set(re.findall(r"^(\w+) {2,}", str(sink.__doc__), re.M))


def test_the_page_explains_every_field_of_the_result_of_the_demo() -> None:
    from sensorgrid.demo.checks import Result

    page = markdown(ROOT / "docs" / "demo.md")
    table = page.text.partition("| field | meaning |")[2].partition("\n\n")[0]
    explained = [
        name for cell in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", cell)
    ]

    assert [*explained, "checks"] == list(Result.__dataclass_fields__)


def test_the_network_on_the_page_can_be_read(tmp_path: Path) -> None:
    from sensorgrid.experiments.relays import topologies_in

    (shown,) = [one for one in markdown(ROOT / "docs" / "relays-results.md").blocks if one.language == "json"]
    (tmp_path / "networks.json").write_text(shown.text)

    assert [name.rpartition(":")[2] for name in topologies_in(tmp_path / "networks.json")] == ["three"]


def test_every_language_of_a_block_is_known() -> None:
    """Whoever adds one says what holds it."""
    known = {"", "sh", "python", "toml", "json", "sql"}
    found = {(one.language, one.place) for page in pages() for one in page.blocks}

    assert [(language, place) for language, place in found if language not in known] == list[
        tuple[str, Place]
    ]()
