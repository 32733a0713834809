"""The supervisor with small children that die, refuse to die, and have children of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servers import PATIENCE_S, wait_for

PROGRAM = """
import asyncio, json, signal, sys
from pathlib import Path
from sensorgrid.runtime import supervisor
from sensorgrid.runtime.supervisor import SupervisedPart, Supervisor
given = json.loads(sys.argv[1])
supervisor.BACKOFF_S = tuple(given["backoff_s"])
supervisor.HEALTHY_S = given["healthy_s"]
async def main():
    parts = [
        SupervisedPart(
            p["name"], (sys.executable, "-c", *p["command"]), p["stage"], p["grace_s"], p["reads_again"],
            signal.Signals(p["asks_with"]), p["may_end"],
        )
        for p in given["parts"]
    ]
    await Supervisor(parts, lambda name, line: print(name, "|", line, flush=True), Path(given["status"])).run()
asyncio.run(main())
print("over", flush=True)
"""
LIVES = "import os, time; print('at work', os.getpid(), flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LIVES
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
{LIVES}
"""
SAYS_WHEN_STOPPED = """
import signal, sys, time
def stop(*_):
    print("stopped by", sys.argv[1], flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("at work", flush=True)
time.sleep(600)
"""


READS_AGAIN = """
import signal, time
signal.signal(signal.SIGHUP, lambda *_: print("read again", flush=True))
print("at work", flush=True)
while True:
    time.sleep(600)
"""


class Watched:
    """A supervisor in a process of its own, with what it said and its status."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, status: Path) -> None:
        self.process, self._log, self._status = process, log, status

    @property
    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    def part(self, name: str) -> dict[str, Any]:
        if not self._status.exists():
            return {"state": "", "pid": None, "restarts": 0}
        parts: list[dict[str, Any]] = json.loads(self._status.read_text())["parts"]
        return next(part for part in parts if part["name"] == name)

    def pid(self, name: str, restarts: int = 0) -> int:
        """Of a part that runs, and has been restarted so often."""

        def found() -> int | None:
            part = self.part(name)
            return part["pid"] if part["state"] == "running" and part["restarts"] >= restarts else None

        return int(wait_for(found, f"{name} to run"))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def part(
    name: str,
    *command: str,
    stage: int = 0,
    grace_s: float = 5.0,
    reads_again: bool = False,
    asks_with: signal.Signals = signal.SIGTERM,
    may_end: bool = False,
) -> dict[str, Any]:
    return {
        "name": name, "command": command, "stage": stage, "grace_s": grace_s, "reads_again": reads_again,
        "asks_with": int(asks_with), "may_end": may_end,
    }  # fmt: skip


@contextmanager
def supervised(
    folder: Path,
    *parts: dict[str, Any],
    backoff_s: tuple[float, float] = (0.05, 0.4),
    healthy_s: float = 3600,
) -> Iterator[Watched]:
    given = {"parts": parts, "status": str(folder / "status.json")}
    given |= {"backoff_s": backoff_s, "healthy_s": healthy_s}
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, json.dumps(given)], stdout=out, stderr=out)
    try:
        yield Watched(process, log, folder / "status.json")
    finally:
        process.kill()
        process.wait()


def is_alive(pid: int) -> bool:
    """Whether a process runs; the dead who wait to be collected do not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until_gone(*pids: int) -> None:
    wait_for(lambda: not any(is_alive(pid) for pid in pids), f"processes {pids} to be gone")


def test_a_killed_child_is_started_again_and_the_others_notice_nothing(tmp_path: Path) -> None:
    with supervised(tmp_path, part("one", LIVES), part("two", LIVES)) as watched:
        first, other = watched.pid("one"), watched.pid("two")

        os.kill(first, signal.SIGKILL)

        assert watched.pid("one", restarts=1) != first
        assert watched.pid("two") == other
        assert any(line.startswith("one | ended by SIGKILL; again in") for line in watched.lines)
        assert watched.stop() == 0


def test_sighup_reaches_those_who_read_their_file_again_and_nobody_else(tmp_path: Path) -> None:
    with supervised(tmp_path, part("one", READS_AGAIN, reads_again=True), part("two", LIVES)) as watched:
        first, other = watched.pid("one"), watched.pid("two")
        wait_for(lambda: "one | at work" in watched.lines, "one to be at work")

        watched.process.send_signal(signal.SIGHUP)

        wait_for(lambda: "one | read again" in watched.lines, "one to hear of it")
        assert (watched.pid("one"), watched.pid("two")) == (first, other)
        assert watched.stop() == 0


def test_a_part_that_may_end_is_not_run_again_and_one_is_asked_with_its_own_signal(tmp_path: Path) -> None:
    asked = SAYS_WHEN_STOPPED.replace("SIGTERM", "SIGINT")
    ends, fails = (
        part(name, f"import sys; sys.exit({n})", may_end=True) for n, name in ((0, "ends"), (3, "fails"))
    )
    with supervised(
        tmp_path, part("one", asked, "a signal of its own", asks_with=signal.SIGINT), ends, fails
    ) as watched:
        wait_for(lambda: "one | at work" in watched.lines, "one to be at work")
        wait_for(lambda: watched.part("ends")["state"] == "stopped", "one to end for good")
        wait_for(lambda: watched.part("fails")["restarts"] >= 1, "one to be run again")

        assert watched.stop() == 0

        assert watched.part("ends")["restarts"] == 0
        assert "ends | ended as it wished; not run again" in watched.lines
        assert "one | stopped by a signal of its own" in watched.lines


def test_pauses_grow_up_to_a_longest_one(tmp_path: Path) -> None:
    fails = part("fails", "import sys; sys.exit(3)")
    with supervised(tmp_path, fails) as watched:
        wait_for(lambda: watched.part("fails")["restarts"] >= 5, "five restarts")
        said = [line for line in watched.lines if "again in" in line][:5]
        assert [line.rpartition("again in ")[2] for line in said] == [
            "0.05 s",
            "0.1 s",
            "0.2 s",
            "0.4 s",
            "0.4 s",
        ]
        assert "ended with exit code 3" in said[0]


def test_after_a_healthy_time_the_pause_is_short_again(tmp_path: Path) -> None:
    with supervised(tmp_path, part("fails", "import sys; sys.exit(3)"), healthy_s=0.0) as watched:
        wait_for(lambda: watched.part("fails")["restarts"] >= 4, "four restarts")
        said = [line for line in watched.lines if "again in" in line][:4]
        assert {line.rpartition("again in ")[2] for line in said} == {"0.05 s"}


def test_output_has_the_name_of_its_part_before_each_line(tmp_path: Path) -> None:
    talks = (
        "import sys; print('one\\ntwo', flush=True); print('bad', file=sys.stderr, end='', flush=True);"
        + LIVES
    )
    with supervised(tmp_path, part("talks", talks)) as watched:
        wait_for(lambda: len([x for x in watched.lines if x.startswith("talks | ")]) >= 3, "three lines")

        assert {"talks | one", "talks | two"} <= set(watched.lines)
        assert any("at work" in line and line.startswith("talks | ") for line in watched.lines)


def test_what_a_dead_child_leaves_behind_is_ended(tmp_path: Path) -> None:
    with supervised(tmp_path, part("parent", PARENT)) as watched:
        first = watched.pid("parent")
        grandchild = int(wait_for(lambda: said(watched, "child"), "the child of the child"))

        os.kill(first, signal.SIGKILL)

        wait_until_gone(first, grandchild)


def said(watched: Watched, word: str) -> str | None:
    """What follows a word in the output."""
    found = (line.split() for line in watched.lines)
    return next((words[words.index(word) + 1] for words in found if word in words[2:-1]), None)


def test_a_stop_ends_the_highest_stage_first(tmp_path: Path) -> None:
    parts = [
        part("broker", SAYS_WHEN_STOPPED, "broker"),
        part("pipeline", SAYS_WHEN_STOPPED, "pipeline", stage=1),
    ]
    with supervised(tmp_path, *parts) as watched:
        pids = watched.pid("broker"), watched.pid("pipeline")
        wait_for(lambda: sum("at work" in line for line in watched.lines) == 2, "both to work")

        code = watched.stop(signal.SIGINT)

        assert code == 0
        stopped = [line.partition(" | ")[2] for line in watched.lines if "stopped by" in line]
        assert stopped == ["stopped by pipeline", "stopped by broker"]
        assert watched.lines[-1] == "over"
        assert not any(is_alive(pid) for pid in pids)
        assert not any("again in" in line for line in watched.lines)


def test_whoever_does_not_stop_is_killed_after_the_grace(tmp_path: Path) -> None:
    with supervised(tmp_path, part("stubborn", STUBBORN, grace_s=0.5)) as watched:
        pid = watched.pid("stubborn")
        wait_for(lambda: said(watched, "work"), "it to ignore signals")

        assert watched.stop() == 0

        assert not is_alive(pid)
        assert any("did not end within 0.5 s; killed" in line for line in watched.lines)


def test_a_stop_does_not_wait_for_the_pause_before_a_restart(tmp_path: Path) -> None:
    with supervised(tmp_path, part("fails", "raise SystemExit(1)"), backoff_s=(3600, 3600)) as watched:
        wait_for(lambda: watched.part("fails")["state"] == "waiting" and watched.lines, "it to fail")

        assert watched.stop() == 0


def test_when_the_supervisor_is_killed_nobody_is_left(tmp_path: Path) -> None:
    with supervised(tmp_path, part("parent", PARENT), part("stubborn", STUBBORN)) as watched:
        pids = [watched.pid("parent"), watched.pid("stubborn")]
        pids.append(int(wait_for(lambda: said(watched, "child"), "the child of the child")))
        wait_for(lambda: sum("at work" in line for line in watched.lines) == 2, "both to work")

        watched.process.kill()

        watched.process.wait()
        wait_until_gone(*pids)


def test_a_command_that_is_not_there_is_told_and_tried_again(tmp_path: Path) -> None:
    missing = part("missing", "x") | {"command": []}
    program = PROGRAM.replace('sys.executable, "-c"', '"/no/such/command"')
    assert program != PROGRAM
    given = {
        "parts": [missing],
        "status": str(tmp_path / "s.json"),
        "backoff_s": [0.05, 0.1],
        "healthy_s": 3600,
    }
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", program, json.dumps(given)], stdout=out, stderr=out)
    try:
        wait_for(lambda: log.read_text().count("cannot be started") >= 2, "two tries")
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
