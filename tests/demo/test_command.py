"""The demo's command: what Ctrl-C leaves behind."""

import asyncio
import gc
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sensorgrid.cli import demo


class Endless:
    """A show that somebody stops."""

    began_s = 0.0
    scene = SimpleNamespace(clock_s=0.0, stage="", events=[])

    async def play(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(600)


def test_ctrl_c_ends_the_demo_without_a_word_of_asyncio(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    show: Any = Endless()

    found = asyncio.run(demo._run(show, tmp_path / "report.html"))
    gc.collect()

    assert found is None
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
