"""`bench all`: the runner survives whatever a command does, and a row says what is true."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sensorgrid.claims import catalogue, running, simulated, timed
from sensorgrid.claims.claim import Claim, Command, FoundFigure, When
from sensorgrid.claims.page import page
from sensorgrid.claims.running import CommandOutcome, MeasuredCode, run
from sensorgrid.claims.verdict import Verdict, judge
from sensorgrid.cli.main import app
from sensorgrid.model.errors import SensorGridError

ROOT = Path(__file__).parents[2]
CODE = MeasuredCode("abc1234", "d1", "1.0")
FIELDS = {"claim", "command", "asked", "limit", "measured", "unit", "holds", "note", "seconds"}
MACHINE = {"python": "3.11", "cpus": 2, "memory_gib": 8.0, "system": "Linux", "numpy": "2"}
DEADLINE_S = 300.0

FAKE = """
import json, os, subprocess, sys, time
kind, *_ = sys.argv[1:]
target = sys.argv[sys.argv.index("--json") + 1]
with open(os.environ["FAKE_CALLS"], "a") as calls:
    calls.write(kind + "\\n")
if kind == "hangs":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(os.environ["FAKE_CALLS"] + ".pids", "w").write(f"{os.getpid()} {child.pid}")
    time.sleep(600)
if kind == "fails":
    print("something before"); sys.exit("error: the disk is full, expected room")
if kind != "silent":
    text = "{" if kind == "nonsense" else json.dumps([1]) if kind == "list" else json.dumps({"rows": [{"value": 7}]})
    open(target, "w").write(text)
sys.exit(1 if kind == "complains" else 0)
"""


@pytest.fixture(autouse=True)
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands are a script that does what its first word says; returns where it notes that it was called."""
    script, noted = tmp_path / "fake.py", tmp_path / "calls"
    script.write_text(FAKE)
    noted.touch()
    monkeypatch.setattr(running, "PROGRAM", (sys.executable, str(script)))
    monkeypatch.setenv("FAKE_CALLS", str(noted))
    return noted


def value_of(result: dict[str, Any]) -> float:
    return float(result["rows"][0]["value"])


def command(kind: str, *claims: Claim, **facts: Any) -> Command:
    return Command(kind, "Theme", (kind,), claims or (Claim("seven", value_of, at_least=7.0),), **facts)


def folder_of(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir(exist_ok=True)
    return made


def played(
    tmp_path: Path, kind: str, code: MeasuredCode = CODE, **facts: Any
) -> tuple[CommandOutcome, Verdict]:
    outcome = run(command(kind, **facts), True, folder_of(tmp_path), code)
    return outcome, judge(outcome, True)[0]


def test_a_command_that_works_is_judged_and_kept(tmp_path: Path) -> None:
    outcome, verdict = played(tmp_path, "works")

    assert (verdict.measured, verdict.holds, verdict.breaks) == (7.0, True, False)
    record = json.loads((tmp_path / "folder" / "works-quick.json").read_text())
    assert (record["commit"], record["version"], record["quick"]) == ("abc1234", "1.0", True)
    assert record["result"] == outcome.result
    assert record["command"] == ["works", "--quick"]


def test_a_command_that_fails_becomes_rows_with_its_last_line(tmp_path: Path) -> None:
    outcome, verdict = played(tmp_path, "fails")

    assert verdict.note == "failed: exit code 1: error: the disk is full, expected room"
    assert (verdict.holds, verdict.measured, verdict.breaks, verdict.word) == (None, None, True, "failed")
    assert outcome.result is None


@pytest.mark.parametrize(
    ("kind", "said"), [("nonsense", "cannot be read"), ("list", "found list"), ("silent", "wrote no result")]
)
def test_a_result_that_is_none_fails(tmp_path: Path, kind: str, said: str) -> None:
    _, verdict = played(tmp_path, kind)

    assert verdict.breaks
    assert said in verdict.note


def test_a_command_that_says_no_but_has_a_result_is_judged_and_breaks(tmp_path: Path) -> None:
    _, verdict = played(tmp_path, "complains")

    assert (verdict.measured, verdict.holds, verdict.breaks) == (7.0, True, True)
    assert "exit code 1" in verdict.note


def test_a_command_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = Path(f"{calls}.pids")

    def clock() -> float:
        """An hour passes when the command has started its child, however long that takes."""
        started = pids.exists() and len(pids.read_text().split()) == 2
        return time.monotonic() + (3600.0 if started else 0.0)

    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=clock))
    _, verdict = played(tmp_path, "hangs", limit_s=600.0)

    assert "not done after 600 s" in verdict.note
    assert all(gone(int(pid)) for pid in pids.read_text().split())


def gone(pid: int) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":  # ended; nobody has asked how
            return True
        time.sleep(0.05)
    return False


def test_what_is_there_is_not_measured_again(tmp_path: Path, calls: Path) -> None:
    first, _ = played(tmp_path, "works")

    again, verdict = played(tmp_path, "works")

    assert calls.read_text().split() == ["works"]
    assert again.kept
    assert (again.result, again.seconds) == (first.result, first.seconds)
    assert verdict.holds


@pytest.mark.parametrize("other", [{"digest": "d2"}, {"version": "1.1"}], ids=["code", "version"])
def test_of_other_code_it_is_measured_again(tmp_path: Path, calls: Path, other: dict[str, str]) -> None:
    played(tmp_path, "works")

    outcome, _ = played(tmp_path, "works", code=replace(CODE, **other))

    assert calls.read_text().split() == ["works", "works"]
    assert not outcome.kept


def test_a_commit_that_changes_no_code_changes_no_figure(tmp_path: Path) -> None:
    played(tmp_path, "works")

    assert played(tmp_path, "works", code=replace(CODE, commit="def5678"))[0].kept


def test_with_other_arguments_or_size_it_is_measured_again(tmp_path: Path, calls: Path) -> None:
    played(tmp_path, "works")
    played(tmp_path, "works", quick=("--quick", "--seeds", "2"))
    run(command("works"), False, folder_of(tmp_path), CODE)

    assert calls.read_text().split() == ["works"] * 3


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"command": ["works", "--quick"]}'])
def test_a_spoilt_folder_is_measured_again(tmp_path: Path, calls: Path, text: str) -> None:
    (folder_of(tmp_path) / "works-quick.json").write_text(text)

    _, verdict = played(tmp_path, "works")

    assert verdict.holds
    assert calls.read_text().split() == ["works"]


@pytest.mark.parametrize(
    "other",
    [{"machine": {}}, {"machine": None}, {"cpus": 1000}, {"numpy": "0"}, {"date": None}, {"seconds": "1"}],
    ids=str,
)
def test_of_another_machine_or_incomplete_it_is_measured_again(
    tmp_path: Path, calls: Path, other: dict[str, Any]
) -> None:
    played(tmp_path, "works")
    place = tmp_path / "folder" / "works-quick.json"
    record = json.loads(place.read_text())
    whole = other.keys() <= record.keys()
    place.write_text(json.dumps(record | (other if whole else {"machine": record["machine"] | other})))

    outcome, _ = played(tmp_path, "works")

    assert not outcome.kept
    assert calls.read_text().split() == ["works", "works"]


def test_a_record_without_its_date_is_measured_again(tmp_path: Path, calls: Path) -> None:
    played(tmp_path, "works")
    place = tmp_path / "folder" / "works-quick.json"
    record = json.loads(place.read_text())
    del record["date"]
    place.write_text(json.dumps(record))

    assert not played(tmp_path, "works")[0].kept


@pytest.mark.parametrize("suffix", ["json", "raw", "log"])
def test_a_folder_in_place_of_a_file_is_a_fault_of_that_command(
    tmp_path: Path, calls: Path, suffix: str
) -> None:
    (folder_of(tmp_path) / f"works-quick.{suffix}").mkdir()

    _, verdict = played(tmp_path, "works")

    assert verdict.breaks
    assert f"works-quick.{suffix}: found a folder, expected a file or nothing" in verdict.note
    assert not calls.read_text()


def test_whatever_is_wrong_with_a_command_is_its_fault_alone(tmp_path: Path) -> None:
    def lacks() -> str:
        raise OSError("no such disk")

    assert played(tmp_path, "works", lacks=lacks)[0].fault == "OSError: no such disk"


@pytest.mark.parametrize("kind", ["fails", "complains"])
def test_a_command_that_failed_is_tried_again(tmp_path: Path, calls: Path, kind: str) -> None:
    played(tmp_path, kind)
    played(tmp_path, kind)

    assert calls.read_text().split() == [kind] * 2


def test_what_cannot_be_run_here_is_said_and_breaks_nothing(tmp_path: Path, calls: Path) -> None:
    _, verdict = played(tmp_path, "works", lacks=lambda: "needs the data folder")

    assert (verdict.note, verdict.holds, verdict.breaks) == (
        "not measured here: needs the data folder",
        None,
        False,
    )
    assert not calls.read_text()


# verdicts


def verdict_of(claim: Claim, quick: bool, value: float = 7.0) -> Verdict:
    outcome = CommandOutcome(command("x", claim), {"rows": [{"value": value}]}, 5.0)
    return judge(outcome, quick)[0]


@pytest.mark.parametrize(
    ("limits", "holds", "asked"),
    [
        ({"at_least": 7.0}, True, "at least 7 s"),
        ({"at_least": 7.1}, False, "at least 7.1 s"),
        ({"at_most": 7.0}, True, "at most 7 s"),
        ({"at_most": 6.9}, False, "at most 6.9 s"),
        ({"at_least": 6.0, "at_most": 8.0}, True, "6 s to 8 s"),
        ({"at_least": 6.0, "at_most": 6.5}, False, "6 s to 6.5 s"),
    ],
)
def test_a_figure_is_within_its_limit_or_not(limits: dict[str, float], holds: bool, asked: str) -> None:
    claim = Claim("seven", value_of, unit="s", **limits)

    verdict = verdict_of(claim, quick=False)

    assert (verdict.holds, verdict.breaks, claim.asked) == (holds, not holds, asked)


def test_no_number_holds_nothing() -> None:
    assert verdict_of(Claim("seven", value_of, at_least=1.0), False, value=float("nan")).breaks


def test_a_known_miss_breaks_nothing_and_says_why() -> None:
    claim = Claim("eight", value_of, at_least=8.0, because="seven is less")

    for known, quick in ((claim, True), (claim, False), (replace(claim, when=When.FULL_BUT_SHOWN), True)):
        verdict = verdict_of(known, quick)
        assert (verdict.holds, verdict.breaks, verdict.word) == (False, False, "no, known")
        assert "seven is less" in verdict.note


@pytest.mark.parametrize(
    ("limits", "known"),
    [
        ({"at_least": 8.0, "at_worst": 7.0}, True),
        ({"at_least": 8.0, "at_worst": 7.5}, False),
        ({"at_most": 6.0, "at_worst": 7.0}, True),
        ({"at_most": 6.0, "at_worst": 6.5}, False),
    ],
)
def test_a_known_miss_that_gets_worse_breaks(limits: dict[str, float], known: bool) -> None:
    verdict = verdict_of(Claim("eight", value_of, because="so it is", **limits), False)

    assert (verdict.holds, verdict.breaks) == (False, not known)
    assert verdict.word == ("no, known" if known else "NO")
    assert ("worse than is known" in verdict.note) == (not known)


def test_every_known_miss_has_a_floor_below_its_limit() -> None:
    for claim in (claim for command in catalogue.COMMANDS for claim in command.claims if claim.because):
        assert claim.at_worst is not None, claim.says
        assert not claim.holds(claim.at_worst), claim.says


def test_less_than_is_not_at_most() -> None:
    less, more = (
        Claim("seven", value_of, strict=True, **limit) for limit in ({"at_most": 7.0}, {"at_least": 7.0})
    )

    assert [(claim.asked, claim.holds(7.0)) for claim in (less, more)] == [
        ("less than 7", False),
        ("more than 7", False),
    ]
    assert less.holds(6.9)
    assert more.holds(7.1)


def test_noise_of_a_quick_run_is_shown_and_not_judged() -> None:
    claim = Claim("eight", value_of, at_least=8.0, when=When.FULL_BUT_SHOWN)

    quick, full = verdict_of(claim, True), verdict_of(claim, False)

    assert (quick.measured, quick.holds, quick.breaks) == (7.0, None, False)
    assert "too small" in quick.note
    assert (full.holds, full.breaks) == (False, True)


def test_what_a_quick_run_cannot_show_is_not_pretended() -> None:
    verdict = verdict_of(Claim("eight", value_of, at_least=8.0, when=When.FULL), True)

    assert (verdict.measured, verdict.holds, verdict.breaks) == (None, None, False)
    assert verdict.note == "full only"


def test_what_is_about_quick_runs_is_told_there_alone_and_breaks_nothing() -> None:
    outcome = CommandOutcome(
        command("x", Claim("eight", value_of, at_least=8.0, when=When.QUICK)), {"rows": [{"value": 7}]}
    )

    (verdict,) = judge(outcome, True)

    assert (verdict.measured, verdict.holds, verdict.breaks) == (7.0, None, False)
    assert not judge(outcome, False)


def test_a_figure_that_a_result_lacks_fails_its_row_alone() -> None:
    missing = Claim("missing", lambda r: float(r["nowhere"]), at_least=0.0)
    outcome = CommandOutcome(
        command("x", missing, Claim("seven", value_of, at_least=7.0)), {"rows": [{"value": 7}]}
    )

    broken, fine = judge(outcome, False)

    assert broken.breaks
    assert "KeyError" in broken.note
    assert fine.holds


@pytest.mark.parametrize("text", ["much", FoundFigure("much", "here"), [1]], ids=str)  # type: ignore[arg-type]
def test_a_figure_that_is_no_number_fails_its_row_alone(text: Any) -> None:
    claims = (Claim("text", lambda r: text, at_least=0.0), Claim("seven", value_of, at_least=7.0))

    broken, fine = judge(CommandOutcome(command("x", *claims), {"rows": [{"value": 7}]}), False)

    assert (broken.failed, broken.breaks, broken.measured) == (True, True, None)
    assert fine.holds


# the command


@pytest.mark.parametrize(
    ("option", "said"), [("--folder", "expected a folder"), ("--page", "found '-', expected a file")]
)
def test_places_are_checked_before_anything_runs(
    tmp_path: Path, commands: Callable[..., None], calls: Path, option: str, said: str
) -> None:
    commands(command("works"))
    place = str(tmp_path / "fake.py") if option == "--folder" else "-"

    done = CliRunner().invoke(app, ["bench", "all", "--quick", option, place])

    assert isinstance(done.exception, SensorGridError)  # exit code 2 and one line
    assert f"{option}: found {place!r}" in str(done.exception)
    assert said in str(done.exception)
    assert not calls.read_text()


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def put(*made: Command) -> None:
        monkeypatch.setattr(catalogue, "COMMANDS", made)

    return put


def test_the_command_writes_its_table_and_a_page(tmp_path: Path, commands: Callable[..., None]) -> None:
    known = Claim("eight | known", value_of, at_least=8.0, because="seven is less")
    commands(command("works"), command("silent2", known, full=("--deep",), quick=None))
    table, markdown = tmp_path / "all.json", tmp_path / "figures.md"

    done = CliRunner().invoke(
        app, ["bench", "all", "--folder", str(tmp_path / "f"), "--json", str(table), "--page", str(markdown)]
    )

    assert done.exit_code == 0, done.output
    found = json.loads(table.read_text())
    assert found["command"] == "bench all"
    assert {"version", "commit", "args", "rows"} <= set(found)
    assert [set(row) for row in found["rows"]] == [FIELDS, FIELDS]
    assert [(row["holds"], row["limit"]) for row in found["rows"]] == [(True, 7.0), (False, 8.0)]
    text = markdown.read_text()
    assert "`sensorgrid silent2 --deep`" in text
    assert "eight \\| known" in text
    assert "Known: seven is less." in text
    assert str(tmp_path) not in text
    assert "what we claim" in done.stdout.lower()


@pytest.mark.parametrize(
    ("kind", "claim"), [("fails", None), ("works", Claim("eight", value_of, at_least=8.0))]
)
def test_what_breaks_is_exit_code_1_and_no_traceback(
    commands: Callable[..., None], kind: str, claim: Claim | None
) -> None:
    commands(command(kind, *([claim] if claim else [])), command("works"))

    done = CliRunner().invoke(app, ["bench", "all", "--quick"])

    assert done.exit_code == 1
    assert "Traceback" not in done.output
    assert "1 hold" in done.output


def test_only_takes_names_and_groups(tmp_path: Path, commands: Callable[..., None], calls: Path) -> None:
    commands(replace(command("a"), timed=True), command("b"), command("c"))

    for only in ("timed", "deterministic", "c,timed"):
        CliRunner().invoke(app, ["bench", "all", "--quick", "--only", only])

    assert calls.read_text().split() == ["a", "b", "c", "a", "c"]


def test_a_name_that_no_command_has_lists_them(commands: Callable[..., None]) -> None:
    commands(command("a"), command("b"))

    done = CliRunner().invoke(app, ["bench", "all", "--only", "a,nothing"])

    assert "found 'nothing', expected some of timed, deterministic, a, b" in str(done.exception)


INTERRUPTED = """
import sys
from pathlib import Path
from sensorgrid.claims import catalogue, running
from sensorgrid.claims.claim import Claim, Command
running.PROGRAM = (sys.executable, sys.argv.pop(1))
claim = Claim("seven", lambda r: 7.0, at_least=7.0)
catalogue.COMMANDS = (Command("hangs", "Theme", ("hangs",), (claim,)),)
from sensorgrid.cli.main import run
run()
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_however_it_ends_what_it_started_ends_too(
    tmp_path: Path, calls: Path, number: int, code: int
) -> None:
    driver = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "fake.py"), "bench", "all", "--quick"]
    process = subprocess.Popen(driver, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    pids = Path(f"{calls}.pids")
    deadline = time.monotonic() + DEADLINE_S
    while not (pids.exists() and len(pids.read_text().split()) == 2) and time.monotonic() < deadline:
        time.sleep(0.05)

    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == code, out
    assert "Traceback" not in out
    assert all(gone(int(pid)) for pid in pids.read_text().split())


# the code that is measured


def test_the_commit_is_that_of_the_checkout_or_unknown(tmp_path: Path) -> None:
    assert running._commit(tmp_path / "site-packages" / "sensorgrid") == "unknown"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    package = tmp_path / "src" / "sensorgrid"
    package.mkdir(parents=True)
    (package / "a.py").write_text("a = 1\n")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)

    clean = running._commit(package)
    (package / "a.py").write_text("a = 2\n")

    assert len(clean) == 10
    assert running._commit(package) == clean + "+"


def test_the_digest_is_of_what_can_change_a_figure(tmp_path: Path) -> None:
    for name in ("index/a.py", "claims/timed.py", "benchmarks/peer.c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one")
    before = running._files(tmp_path)

    (tmp_path / "claims/timed.py").write_text("two")
    assert running._files(tmp_path) == before
    (tmp_path / "benchmarks/peer.c").write_text("two")
    assert running._joined(running._files(tmp_path)) != running._joined(before)


def test_an_experiment_is_run_again_only_if_code_that_it_is_made_of_has_changed() -> None:
    command = catalogue.chosen("multires")[0]
    files = {
        "overlay/broker.py": "1",
        "overlay_not/x.py": "1",
        "pipeline/jobs.py": "1",
        "cli/experiment.py": "1",
    }

    def digest(**other: str) -> str:
        code = replace(CODE, files=tuple((files | other).items()))
        return code.digest_for(command)

    assert digest() == digest(**{"pipeline/jobs.py": "2"}) == digest(**{"overlay_not/x.py": "2"})
    assert len({digest(), digest(**{"overlay/broker.py": "2"}), digest(**{"cli/experiment.py": "2"})}) == 3
    assert replace(CODE, files=()).digest_for(catalogue.chosen("demo")[0]) == CODE.digest


def test_an_experiment_is_made_of_the_rooms_that_it_declares() -> None:
    modules = ("multires", "moving", "relays", "faults")
    program = (
        f"import sys, importlib\nfor m in {modules}: importlib.import_module('sensorgrid.experiments.' + m)\n"
        "print(*(m.removeprefix('sensorgrid.') for m in sys.modules if m.startswith('sensorgrid.')))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    ends_processes = {"runtime", "runtime.supervisor"}
    loaded = {m for m in done.stdout.split() if m not in ends_processes}
    assert "experiments.multires" in loaded
    assert not {m for m in loaded if not (m.replace(".", "/") + "/").startswith(simulated.ROOMS)}


# the page


def test_the_page_says_what_does_not_hold_and_names_no_place(tmp_path: Path) -> None:
    claims = (
        Claim("seven", value_of, at_least=7.0),
        Claim("eight", value_of, at_least=8.0),
        Claim("nine", value_of, at_least=9.0, because="seven is less"),
    )
    outcome = CommandOutcome(command("x", *claims), {"rows": [{"value": 7}]}, 61.0, "2026-01-02")

    text = page(
        judge(outcome, False), [outcome], replace(CODE, commit="abc+"), MACHINE, False, "sensorgrid bench all"
    )

    assert "commit `abc`, with changes that are not committed, version 1.0" in text
    assert "- Measured: 2026-01-02\n" in text
    assert "2 cores, 8 GiB, Linux, Python 3.11, numpy 2" in text
    assert "| seven | at least 7 | 7 | yes |  |" in text
    assert "- Theme: eight: 7, asked at least 8. **Not expected.**" in text
    assert "- Theme: nine: 7, asked at least 9. Known: seven is less." in text
    assert "| `sensorgrid x` | 61 |" in text
    assert "3 claims, 1 hold, 1 known not to hold, 1 broken or failed" in text


# the list


def subcommands(name: str) -> Iterator[tuple[str, str]]:
    group = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    return ((name, child) for child in group.commands)


def test_every_benchmark_and_experiment_is_in_the_list() -> None:
    measured = {command.words[:2] for command in catalogue.COMMANDS}
    there = {*subcommands("bench"), *subcommands("experiment")} - {("bench", "all")}

    assert there <= measured


@pytest.mark.parametrize("command", catalogue.COMMANDS, ids=lambda c: c.name)
def test_the_list_is_made_of_commands_that_exist(command: Command, tmp_path: Path) -> None:
    for quick in (True, False):
        words = list(command.arguments(quick) or ())
        found: Any = typer.main.get_command(app)
        while words and hasattr(found, "commands"):
            found = found.commands[words.pop(0)]
        if words:
            found.make_context("x", words)  # refuses options that it does not know
    assert command.full == () or not any("/" in word for word in command.full)
    assert len({claim.says for claim in command.claims}) == len(command.claims)


def test_names_are_unique_and_what_depends_on_the_machine_comes_together() -> None:
    assert len({command.name for command in catalogue.COMMANDS}) == len(catalogue.COMMANDS)
    flags = [command.timed for command in catalogue.COMMANDS]
    assert flags == sorted(flags, reverse=True)


def test_every_claim_has_a_limit() -> None:
    for command in catalogue.COMMANDS:
        for claim in command.claims:
            assert claim.limit is not None, claim.says


# figures that only a full run has


def test_the_index_is_compared_with_the_better_r_tree() -> None:
    def row(impl: str, operation: str, stored: int, speed: float, **more: float) -> dict[str, Any]:
        facts = {"impl": impl, "operation": operation, "stored": stored, "distribution": "uniform"}
        return facts | {"per_second": speed} | more

    result = {
        "rows": [
            row("sensorgrid-batch", "lookup", 10_000, 60.0, seconds_per_hit=1e-9),
            row("rtree-batch", "lookup", 10_000, 5.0),
            row("rtree-batch-grown", "lookup", 10_000, 10.0),
            row("sensorgrid-batch", "lookup", 1_000_000, 6.0, seconds_per_hit=3e-9),
            row("rtree-batch", "lookup", 1_000_000, 2.0),
            row("sensorgrid-batch-second", "insert", 10_000, 12.0),
            row("rtree-batch", "insert", 10_000, 4.0),
            {"stored": 0, "operation": "decompose", "impl": "sensorgrid-single"},
        ]
    }

    assert timed.least(timed._times(result, "batch", "lookup")) == (3.0, "worst: 1,000,000 uniform boxes")
    harder = timed.least(timed._harder(result))
    assert harder is not None
    assert harder.value == 3.0
    assert next(timed._growth_per_hit(result)).value == pytest.approx(3.0)


def pipeline_row(mode: str, million: float, seconds: float, **more: Any) -> dict[str, Any]:
    facts = {
        "mode": mode,
        "measurements": round(million * 1e6),
        "seconds": seconds,
        "reference_seconds": 10.0,
    }
    counts = {"used": 5, "flagged": 1, "duplicate": 0, "balanced": True}
    return facts | counts | {"per_second": 1 / seconds, "ticks": 250, "peak_rss_bytes": 4 << 30} | more


def test_the_pipeline_is_judged_where_the_limits_are_about() -> None:
    result = {
        "rows": [
            pipeline_row("reference", 0.25, 10.0),
            pipeline_row("batch", 0.25, 20.0),
            pipeline_row("stream", 0.25, 50.0, micro_batch=40_000),
            pipeline_row("reference", 2.5, 10.0),
            pipeline_row("batch", 2.5, 8.0),
            pipeline_row("stream", 2.5, 25.0, micro_batch=40_000),
            pipeline_row("stream", 2.5, 12.5, micro_batch=250_000),
            pipeline_row("reference", 10, 10.0, used=6),
            pipeline_row("stream", 10, 16.0, micro_batch=250_000, ticks=1000, peak_rss_bytes=5 << 30),
        ]
    }

    assert timed.least(timed._batch(result)) == (1.25, "worst: 2.5 million")
    assert timed.least(timed._stream(result, few=True)) == (0.2, "worst: 0.25 million, 40,000 at a time")
    assert timed.least(timed._stream(result, few=False)) == (0.625, "worst: 10 million, 250,000 at a time")
    assert timed._rises(result).__next__().value == pytest.approx(2.0)
    assert timed._flat(result) == (1.25, "1,000 ticks against 250")
    assert timed._unlike(result) == 1


def test_fan_out_with_few_clients_is_a_claim_of_its_own() -> None:
    def row(clients: int, ratio: float, tls: bool = False) -> dict[str, Any]:
        facts = {"clients": clients, "block_bytes": 16 << 10, "tls": tls, "boxes": "same", "other": "c-epoll"}
        return facts | {"ratio": ratio}

    result = {"summary": [row(16, 2.0), row(128, 1.2), row(1000, 1.3, tls=True)]}

    assert timed._cost(result, "c-epoll", "same", few=True) == (2.0, "worst: 16 clients, 16 KB")
    assert timed._cost(result, "c-epoll", "same", few=False) == (1.3, "worst: 1,000 clients, 16 KB, TLS")
    assert timed._cost(result, "mosquitto", "same", few=True) is None


def relays_row(strategy: str, traffic: float, seed: int = 1, **more: Any) -> dict[str, Any]:
    facts = {"strategy": strategy, "topology": "internet", "placement": "core", "seed": seed}
    return (
        facts
        | {"traffic_counted": traffic, "bound_ratio": traffic / 50, "reduction": 1 - traffic / 100}
        | more
    )


def test_the_tree_is_compared_with_the_best_strategy_of_each_run() -> None:
    rows = [relays_row(name, t) for name, t in (("OFF", 100), ("CTS", 60), ("CTP", 80), ("TREE", 54))]
    rows += [relays_row(name, t, 2) for name, t in (("OFF", 100), ("CTS", 90), ("CTP", 75), ("TREE", 60))]

    found = simulated._less_than_best({"rows": rows}, "core")

    assert found is not None
    assert found.value == pytest.approx(0.15)
    assert found.where == "core placement; best CTP/CTS; single seeds from 10.0%"
    assert simulated._tree_ratio({"rows": rows}, "core") == (pytest.approx(1.14), "mean of 2, at most 1.200")
    assert simulated._less_than_best({"rows": rows}, "edge") is None


def test_savings_at_a_depth_are_of_that_depth_hot_spot_and_policy() -> None:
    def row(dims: int, depth: int, replication: float) -> dict[str, Any]:
        return {
            "hotspot": "large", "dims": dims, "depth": depth, "policy": "paper", "seed": 1,
            "replication_at_20": replication, "messages": 10 * depth,
        }  # fmt: skip

    result = {"rows": [row(4, 10, 8.0), row(2, 10, 10.0), row(4, 6, 5.0), row(2, 6, 10.0)]}

    assert simulated._saved(result, 10, "large", "paper") == FoundFigure(
        pytest.approx(0.2), "4 dimensions against 2, at equal load"
    )
    assert simulated._saved(result, 10, "small", "paper") is None
    assert simulated._by_depth(result, "messages", 6, 10, "large") == pytest.approx(10 / 6)


# every figure: which of several it is, where it stands, and whether it holds


def relays_table(**changed: float) -> dict[str, Any]:
    """Two seeds of all strategies in all placements; `TREE_edge=50` is what TREE sends at the edge."""
    sent = {"OFF": 100, "DIRECT": 60, "CTD": 55, "CTS": 45, "FFS": 54, "CTP": 50, "TREE": 30}
    rows = []
    for placement in simulated.PLACEMENTS:
        for strategy, usual in sent.items():
            traffic = changed.get(f"{strategy}_{placement}", usual)
            facts = {"placement": placement, "bound_ratio": traffic / 29, "processor_s": traffic / 5}
            facts["tree_changes_per_event"] = traffic / 100
            facts["delays"] = [
                {"capacity_bps": 1e9, "mean_s": traffic / 100},
                {"capacity_bps": 4e9, "mean_s": 1.0},
            ]
            rows += [relays_row(strategy, traffic, seed, **facts) for seed in (1, 2)]
    return {"rows": rows}


def multires_row(hotspot: str, policy: str, load: float, copies: float, streams: int) -> dict[str, Any]:
    return {
        "hotspot": hotspot, "dims": 4, "depth": 8, "policy": policy, "seed": 1, "load": load, "load_bound": 25.0,
        "replication_at_20": copies, "replication_bound_at_20": 1.0, "replication_share": 0.1, "messages": 1,
        "connections_per_broker": 100 if policy == "paper" else streams,
    }  # fmt: skip


def multires_table() -> dict[str, Any]:
    cases = (("large", 24.9, 1.2, 90), ("small", 24.0, 1.1, 100))
    return {"rows": [multires_row(h, policy, *rest) for h, *rest in cases for policy in ("paper", "ours")]}  # type: ignore[arg-type]


def moving_table(ours: float, anticipate: float) -> dict[str, Any]:
    waits = {"ours": ours, "anticipate": anticipate}
    return {
        "rows": [{"policy": p, "storm": "x", "refused_share": 0.0, "wait_p99_s": w} for p, w in waits.items()]
    }


def rising_table() -> dict[str, Any]:
    speeds = ((10_000, 1.0), (40_000, 3.0), (250_000, 6.0), (1_000_000, 5.4))
    return {"rows": [pipeline_row("stream", 2.5, 1 / speed, micro_batch=size) for size, speed in speeds]}


FAULTY = {"summary": {"failed": [3, 8], "schedules": 1000, "two_levels_share": 0.5}}
FAULTLESS = {"summary": {"failed": [], "schedules": 1000, "two_levels_share": 0.5}}
CORE, EDGE = (
    relays_table(CTS_core=48),
    relays_table(TREE_edge=60.0, CTP_edge=54.0, CTS_edge=52.0, FFS_edge=53.0),
)


@pytest.mark.parametrize(
    ("made", "says", "result", "value", "where", "holds"),
    [
        (simulated.RELAYS, "in every placement (its best", EDGE, 0.48, "CTS, edge", True),
        (simulated.RELAYS, "in the core (its best", CORE, 0.52, "CTS, core", True),
        (simulated.RELAYS, "changes providers no more", EDGE, 60 / 54, "edge", False),
        (simulated.RELAYS, "closest to path saves most", EDGE, 50 / 45, "core placement, seed 1", False),
        (simulated.RELAYS, "takes at most 30 s", EDGE, 12.0, "DIRECT", True),
        (simulated.RELAYS, "uplinks of 1 Gbit/s", EDGE, 0.6, "edge", False),
        (simulated.RELAYS, "TREE: at least 15 % less than the paper's best strategy in hindsight, edge", EDGE,
         1 - 60 / 52, "edge", False),
        (simulated.MULTIRES, "ours serves at least 99 %", multires_table(), 0.96, "small", False),
        (simulated.MULTIRES, "ours replicates at most 1.25", multires_table(), 1.2, "large", True),
        (simulated.MULTIRES, "ours needs fewer streams", multires_table(), 1.0, "small", False),
        (simulated.MOVING, "wait less", moving_table(4.0, 3.0), 0.75, "storms: 1", True),
        (simulated.MOVING, "wait less", moving_table(3.0, 3.0), 1.0, "storms: 1", False),
        (simulated.FAULTS, "all schedules", FAULTY, 2, "of 1,000; seeds 3, 8", False),
        (simulated.FAULTS, "all schedules", FAULTLESS, 0, "of 1,000", True),
        (timed.PIPELINE, "faster with larger", rising_table(), 0.9, "1,000,000 at a time against 250,000", False),
    ],
)  # fmt: skip
def test_a_figure_its_place_and_its_verdict(
    made: Command, says: str, result: dict[str, Any], value: float, where: str, holds: bool
) -> None:
    (verdict,) = (v for v in judge(CommandOutcome(made, result, 1.0), False) if says in v.claim.says)

    assert verdict.measured == pytest.approx(value), verdict.note
    assert where in verdict.note
    assert verdict.holds is holds


@pytest.mark.parametrize(
    ("made", "says", "limit"),
    [
        (simulated.MULTIRES, "ours serves at least", 0.99),
        (simulated.MULTIRES, "alone, serves at least", 0.975),
        (simulated.MULTIRES, "ours replicates", 1.25),
        (simulated.RELAYS, "TREE: traffic at most 1.05 times the bound, core", 1.05),
        (simulated.RELAYS, "TREE: traffic at most 1.1 times the bound, edge", 1.10),
        (simulated.RELAYS, "TREE: traffic at most 1.1 times the bound, full", 1.10),
        (simulated.RELAYS, "in every placement (its best", 0.33),
        (simulated.RELAYS, "in the core (its best", 0.5),
        (simulated.RELAYS, "hindsight, edge", 0.15),
        (simulated.RELAYS, "takes at most 30 s", 30.0),
        (timed.OVERLAY, "fit into 2 GiB", 2.0),
        (timed.OVERLAY, "anywhere: 2,000", 2000.0),
    ],
)
def test_limits_are_those_that_were_asked_for(made: Command, says: str, limit: float) -> None:
    assert [claim.limit for claim in made.claims if says in claim.says] == [limit]
