"""Command lines of the pages as people type them, in a folder of their own: what each needs, and what is in its place.

Lines run in a shell, beside a copy of `examples/`. What differs from what a reader types is in the tables below.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pages import checking
from pages.reading import EXAMPLES, Place, pages
from sensorgrid.demo.stage import free_ports
from servers import wait_for

DEADLINE_S = 900.0
"""for anything: only what is broken reaches it"""

ELSEWHERE = {
    r"sensorgrid (bench|experiment) ": "runs with --quick in the test of all benchmarks and experiments",
    r"sensorgrid demo\b": "runs in tests/demo/test_demo.py, for seconds instead of a minute",
    r"python examples/": "runs in tests/test_examples.py, on grids with ticks of seconds",
    r"sensorgrid pipeline replay examples/storm.toml": "runs in tests/test_examples.py, where the data are",
    r"(python3|.venv/bin/\S+|pip) ": "the installation and the test command themselves: CI begins with them",
}
"""lines that are not run here, and where they are; all of them are read by their commands' parsers (test_names.py)"""

SMALLER = {
    "stations = 6000": "stations = 200",
    "stations = 1500": "stations = 100",
    "shape = [256, 128]": "shape = [64, 32]",
    "region_digits = 4": "region_digits = 2",
    'until = "2026-03-01T06:00:00Z"': 'until = "2026-03-01T01:00:00Z"',
}
"""in the copies of the examples' files: the same lines on a smaller earth, so that all of them take minutes"""

REPLACED = {
    "ws://localhost:7400": "{url}",
    "-p 1883": "-p {mqtt}",
    "FILE": "grid.toml",
    "URL": "{url}",
}
"""in lines: ports that are free, and words that stand for something"""


@dataclass(frozen=True)
class Typed:
    """A line that is run, with all the places that have it."""

    text: str
    places: tuple[Place, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the command: ("pipeline", "run")."""
        words = checking.parts_of(self.text)[0]
        return checking.command_of(words[1:])[0] if words[0] == "sensorgrid" else (words[0],)

    def __str__(self) -> str:
        return self.text


def all_lines() -> list[Typed]:
    """Every line that pages and help texts want to be typed, once each."""
    found: dict[str, list[Place]] = {}
    for page in [*pages(), checking.helps()]:
        for line in page.lines:
            if line.whole:
                for text in checking.alternatives(line.text):
                    found.setdefault(text, []).append(line.place)
    return [Typed(text, tuple(places)) for text, places in found.items()]


def played() -> list[Typed]:
    """Those that are run here."""
    return [line for line in all_lines() if not any(re.match(pattern, line.text) for pattern in ELSEWHERE)]


def lines_of(*names: str) -> list[Typed]:
    """Those of a command that are run here."""
    return [line for line in played() if line.names == names]


class Workshop:
    """A folder with a copy of the examples, in which lines are typed."""

    def __init__(self, folder: Path, grid: str = "") -> None:
        self.folder = folder.resolve()
        self.mqtt, self.url = free_ports(1)[0], "ws://localhost:7400"
        shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        for path in (folder / "examples").glob("*.toml"):
            path.write_text(self.adapted(path.read_text()))
        if grid:
            (folder / "grid.toml").write_text(self.adapted(grid))
        programs = folder / "bin"
        programs.mkdir()
        for name, command in (("sensorgrid", "-m sensorgrid"), ("python", "")):
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
            (programs / name).chmod(0o755)

    def adapted(self, configuration: str) -> str:
        """A configuration with free ports instead of the usual ones, and a smaller earth."""

        def brokers(found: re.Match[str]) -> str:
            ports = enumerate(free_ports(int(found[1])))
            listed = [f'{{id = {n}, url = "ws://127.0.0.1:{p}"}}' for n, p in ports]
            return f"brokers = [{', '.join(listed)}]"

        for usual, other in SMALLER.items():
            configuration = configuration.replace(usual, other)
        configuration = re.sub(r"^port = 1883$", "", configuration, flags=re.M)
        configuration = configuration.replace('kind = "mqtt"', f'kind = "mqtt"\nport = {self.mqtt}')
        return re.sub(r"^brokers = (\d+)$", brokers, configuration, flags=re.M)

    def environment(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}:{os.environ.get('PATH', os.defpath)}:/usr/sbin"
        return os.environ | {
            "PATH": path,
            "SENSORGRID_URL": self.url,
            "COLUMNS": "200",
        }

    def typed(self, line: Typed) -> str:
        """As it is typed here."""
        text = line.text
        for usual, other in REPLACED.items():
            text = re.sub(
                rf"(?<!\S){re.escape(usual)}(?!\S)", other.format(url=self.url, mqtt=self.mqtt), text
            )
        return text

    def run(self, line: Typed, code: int = 0) -> str:
        """What a line prints; it must end with this code, and without a traceback."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self.typed(line)],
            cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == code, (
            f"{line.places}: {line}: ended with {done.returncode}:\n{said[-4000:]}"
        )
        assert "Traceback" not in said, f"{line.places}: {line}:\n{said[-4000:]}"
        self.nothing_is_left(line)
        return said

    @contextlib.contextmanager
    def started(self, line: Typed, *signs: str, ends: int = 0, stop: int = signal.SIGINT) -> Iterator[Path]:
        """A line that runs for ever, once it has shown all signs of life; then it is stopped and must end well."""
        log = self.folder / f"{uuid.uuid4().hex}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self.typed(line)}"],
                cwd=self.folder, env=self.environment(), stdout=out, stderr=out,
            )  # fmt: skip

        def said() -> str:
            return log.read_text(errors="replace")

        def lives() -> bool:
            assert process.poll() is None, (
                f"{line.places}: {line}: ended with {process.returncode}:\n{said()[-4000:]}"
            )
            return all(re.search(sign, said()) for sign in signs)

        try:
            wait_for(lives, f"{signs} of {line}, see {log}", DEADLINE_S)
            yield log
            process.send_signal(stop)
            process.wait(DEADLINE_S)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == ends, (
            f"{line.places}: {line}: ended with {process.returncode}:\n{said()[-4000:]}"
        )
        assert "Traceback" not in said(), f"{line.places}: {line}:\n{said()[-4000:]}"
        self.nothing_is_left(line)

    def nothing_is_left(self, line: Typed) -> None:
        """No process that a line has started runs any more."""
        wait_for(lambda: not self.processes(), f"the end of all processes of {line}: {self.processes()}", 60)

    def processes(self) -> list[str]:
        """All that run in this folder, whoever is their parent by now."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if Path(os.readlink(place / "cwd")) == self.folder:
                    found.append(f"{place.name} {(place / 'cmdline').read_text()[:200]!r}")
        return found


def needed_programs(text: str) -> list[str]:
    """Programs of others that a line starts and that are not there."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
    programs = {words[0] for words in checking.parts_of(text)} & set(checking.FOREIGN)
    return [name for name in programs if shutil.which(name, path=path) is None]
