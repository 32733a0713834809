"""The house rules: style, types, the direction of imports, documentation that runs."""

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import xarray

import sensorgrid
from net_thread import NetThread

ROOT = Path(__file__).parent.parent


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "command", [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)], ids=" ".join
)
def test_style_and_types_hold(command: tuple[str, ...]) -> None:
    result = run(*command)

    assert result.returncode == 0, result.stdout + result.stderr


def test_imports_point_one_way() -> None:
    result = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert result.returncode == 0, result.stdout + result.stderr


def test_nothing_in_the_package_is_dead() -> None:
    result = run("vulture")

    assert not [line for line in result.stdout.splitlines() if line.startswith("src/")], result.stdout


def test_a_class_name_stands_for_one_class() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


@pytest.mark.parametrize("name", [m.name for m in pkgutil.walk_packages(sensorgrid.__path__, "sensorgrid.")])
def test_the_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))

    assert failed == 0


def test_importing_sensorgrid_is_quick_because_it_compiles_nothing() -> None:
    code = "import sys, sensorgrid; assert 'numba' not in sys.modules, 'numba'"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr


def test_the_readme_has_two_commands_and_ci_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text()
    commands = [block.strip() for block in re.findall(r"```sh\n(.*?)```", readme, re.S)]

    assert len(commands) == 2
    assert commands[0].endswith("sensorgrid demo")
    assert commands[1] in (ROOT / ".ci" / "run").read_text()


def test_the_python_example_of_the_readme_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert "ws://localhost:7400" in example

    class Model:
        """Has enough after two steps."""

        steps: ClassVar[list[xarray.DataArray]] = []

        def step(self, field: xarray.DataArray) -> None:
            self.steps.append(field)
            if len(self.steps) == 2:
                raise StopAsyncIteration

    with NetThread(tmp_path, grid={"shape": [256, 128]}) as net:
        net.net.tick = int(time.time())
        net.publish_soon(0.1, 40)
        with pytest.raises(StopAsyncIteration):
            exec(example.replace("ws://localhost:7400", net.url()), {"model": Model()})

    first, second = Model.steps
    assert first.dims == ("latitude", "longitude")
    assert not np.isnan(first.values).any()
    assert int(second["tick"]) == int(first["tick"]) + 2  # every other tick was asked for


def test_the_version_is_the_same_everywhere() -> None:
    assert f'version = "{sensorgrid.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"## {sensorgrid.__version__}" in (ROOT / "CHANGELOG.md").read_text()
