"""The cache of compiled code, when several processes begin at once."""

from pathlib import Path

import pytest

from sensorgrid.index import jit


def test_processes_that_begin_at_once_share_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit._config, "CACHE_DIR", str(tmp_path))
    first = jit._folder()
    monkeypatch.setattr(Path, "exists", lambda self: False)  # as the other one saw it, a moment before

    assert first is not None
    assert jit._folder() == first


def test_a_folder_that_somebody_else_removes_is_the_oldest(tmp_path: Path) -> None:
    assert jit._used(tmp_path / "gone") < jit._used(tmp_path)
