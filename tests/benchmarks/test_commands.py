"""Every `bench` and `experiment`, run for real with `--quick`: it ends well and writes what it promises.

The long tests run each command through `bench all` and keep what it wrote; the last one takes all of it from there.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from contracts import CONTRACTS, DEMO, TOP, Contract, breaches
from sensorgrid.claims import catalogue
from sensorgrid.cli.main import app
from sensorgrid.demo.checks import Result

ROWS = frozenset({"claim", "command", "asked", "limit", "measured", "unit", "holds", "note", "seconds"})
NAMES = [contract.name for contract in CONTRACTS]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("figures")


def bench_all(folder: Path, *arguments: str) -> tuple["subprocess.CompletedProcess[str]", dict[str, Any]]:
    target = folder / "all.json"
    target.unlink(missing_ok=True)
    command = [sys.executable, "-m", "sensorgrid", "bench", "all", "--quick", "--folder", str(folder)]
    done = subprocess.run(
        [*command, "--json", str(target), *arguments], capture_output=True, text=True, check=False
    )
    return done, json.loads(target.read_text()) if target.exists() else {}


def kept(folder: Path, name: str) -> dict[str, Any]:
    """What a command wrote; skips where it cannot be run."""
    (command,) = (c for c in catalogue.COMMANDS if c.name == name)
    if reason := command.lacks():
        pytest.skip(reason)
    done, _ = bench_all(folder, "--only", name)
    log = folder / f"{name}-quick.log"
    said = log.read_text() if log.exists() else ""
    assert "Traceback" not in done.stdout + done.stderr + said, said[-3000:]
    place = folder / f"{name}-quick.json"
    assert place.exists(), done.stderr[-3000:]
    result: dict[str, Any] = json.loads(place.read_text())["result"]
    return result


@pytest.mark.long
@pytest.mark.parametrize("contract", CONTRACTS, ids=NAMES)
def test_the_command_writes_what_it_promises(contract: Contract, folder: Path) -> None:
    result = kept(folder, contract.name)

    assert not breaches(contract, result)
    assert result["command"] == " ".join(contract.words[:2])
    assert result["args"]["quick"]


def test_the_demo_promises_what_its_result_has() -> None:
    """It runs in `tests/demo`."""
    assert set(Result.__dataclass_fields__) == DEMO | {"checks"}


@pytest.mark.long
def test_everything_that_does_not_depend_on_the_machine_holds_and_the_rest_is_measured(folder: Path) -> None:
    page = folder / "figures.md"

    without = ",".join(command.name for command in catalogue.COMMANDS if command.name != "demo")
    done, table = bench_all(folder, "--page", str(page), "--only", without)
    simulated, _ = bench_all(folder, "--only", "deterministic")

    broken = [row for row in table["rows"] if row["note"].startswith("failed")]
    assert not broken
    assert simulated.returncode == 0, simulated.stdout
    assert set(table) >= TOP | {"commit"}
    assert all(set(row) == ROWS for row in table["rows"])
    assert "Traceback" not in done.stdout + done.stderr
    assert str(folder) not in page.read_text()


def there(group: str) -> set[tuple[str, str]]:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {(group, name) for name in commands[group].commands}


def test_every_benchmark_and_experiment_has_a_contract() -> None:
    promised = {contract.words[:2] for contract in CONTRACTS} | {("bench", "all")}

    assert there("bench") | there("experiment") == promised


def test_contracts_are_about_commands_as_bench_all_runs_them() -> None:
    words = {command.name: command.words for command in catalogue.COMMANDS}

    assert [words[contract.name] for contract in CONTRACTS] == [contract.words for contract in CONTRACTS]


def test_a_breach_is_found() -> None:
    contract = Contract("x", ("bench", "x"), frozenset({"a"}), TOP, {"a": {1, 2}}, {"more": frozenset({"b"})})
    fine = {
        "command": "bench x",
        "version": "1",
        "args": {},
        "rows": [{"a": 1}, {"a": 2}],
        "more": [{"b": 1}],
    }

    assert breaches(contract, fine) == []
    assert breaches(contract, {k: v for k, v in fine.items() if k != "version"}) == ["no version"]
    assert breaches(contract, fine | {"rows": []})[0] == "no entry in rows"
    assert breaches(contract, fine | {"rows": [{"a": 1}, {"c": 2}]})[0] == "rows[1] lacks a"
    assert breaches(contract, fine | {"rows": [{"a": 1}]}) == ["a: found ['1'], expected ['1', '2']"]
    assert breaches(contract, fine | {"more": [{}]}) == ["more[0] lacks b"]
