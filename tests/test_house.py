"""The house rules: style, types, the direction of imports, documentation that runs."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sensorgrid

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
    assert "sensorgrid pipeline backfill examples/earth.toml" in commands[0]
    assert commands[1] in (ROOT / ".ci" / "run").read_text()


def test_the_python_example_of_the_readme_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    names: dict[str, object] = {}

    exec(example, names)

    assert len(names["tree"]) == 2  # type: ignore[arg-type]
    assert "points_per_tick=7225" in example
    assert names["query"].size(names["grid"]).points_per_tick == 7225  # type: ignore[attr-defined]


def test_the_version_is_the_same_everywhere() -> None:
    assert f'version = "{sensorgrid.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"## {sensorgrid.__version__}" in (ROOT / "CHANGELOG.md").read_text()
