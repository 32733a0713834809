"""The store of rosters: one writer per version, and a disk that hangs, breaks or holds something else."""

import asyncio
import threading
from pathlib import Path

import pytest

from sensorgrid.model.grid import Grid
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.roster import Member, Roster, Terms
from sensorgrid.overlay.settings import Settings
from sensorgrid.runtime import rosters
from sensorgrid.runtime.rosters import RosterStore, StoreError
from servers import PATIENCE_S


def roster(version: int, owner: int = 0) -> Roster:
    return Roster(version, Terms.of(Grid(), Settings(budget=1)), (Member(PeerId(owner), "ws://there:1"),), ())


def test_of_many_that_write_one_version_one_succeeds(tmp_path: Path) -> None:
    won: list[int] = []
    begin = threading.Barrier(8)

    def write(number: int) -> None:
        store = RosterStore(str(tmp_path), founds=True)
        begin.wait(PATIENCE_S)
        if store.write(roster(1, number)):
            won.append(number)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    (winner,) = won
    assert RosterStore(str(tmp_path), founds=True).newest() == roster(1, winner)


def test_the_newest_is_found_by_one_who_knows_an_older_one(tmp_path: Path) -> None:
    store, other = RosterStore(str(tmp_path), founds=True), RosterStore(str(tmp_path), founds=True)
    store.write(roster(1))
    assert store.newest() == roster(1)

    for version in range(2, 13):  # more digits do not sort before fewer
        other.write(roster(version))

    assert store.newest() == other.newest() == roster(12)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"version": "x"}', b"[" * 100_000])
def test_what_is_no_roster_is_told(tmp_path: Path, content: bytes) -> None:
    store = RosterStore(str(tmp_path), founds=True)
    store.write(roster(1))
    (tmp_path / "roster" / "0000000000002.json").write_bytes(content)

    with pytest.raises(StoreError, match=r"0000000000002\.json: found no roster of this version"):
        store.newest()


def test_what_people_put_beside_rosters_does_not_matter(tmp_path: Path) -> None:
    store = RosterStore(str(tmp_path), founds=True)
    store.write(roster(1))
    content = (tmp_path / "roster" / "0000000000001.json").read_bytes()
    for name in ("backup.json", "9999.json", "00000000000019.json", "notes.txt"):
        (tmp_path / "roster" / name).write_bytes(content)

    store.write(roster(2))

    assert RosterStore(str(tmp_path)).newest() == roster(2)


def test_a_copy_under_another_version_is_no_roster(tmp_path: Path) -> None:
    store = RosterStore(str(tmp_path), founds=True)
    store.write(roster(1))
    content = (tmp_path / "roster" / "0000000000001.json").read_bytes()
    (tmp_path / "roster" / "0000000000007.json").write_bytes(content)

    with pytest.raises(
        StoreError, match=r"0000000000007.json: found no roster of this version \(version 1\)"
    ):
        store.newest()


def test_who_does_not_found_a_network_makes_no_folder(tmp_path: Path) -> None:
    store = RosterStore(str(tmp_path / "lake"))

    assert store.newest() is None
    with pytest.raises(StoreError, match="no folder"):
        store.write(roster(1))
    assert not (tmp_path / "lake").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")

    with pytest.raises(StoreError, match="expected to write there"):
        RosterStore(str(tmp_path / "lake"), founds=True).write(roster(1))


def test_a_disk_that_hangs_takes_one_thread_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, store = threading.Event(), RosterStore(str(tmp_path), founds=True)
    newest = store.newest
    monkeypatch.setattr(rosters, "ANSWER_S", 0.05)

    def hanging() -> Roster | None:
        hangs.wait(PATIENCE_S)
        return newest()

    monkeypatch.setattr(store, "newest", hanging)

    async def story() -> None:
        before = threading.active_count()
        with pytest.raises(StoreError, match="found no answer within"):
            await store.settle(roster(1))
        for _ in range(20):
            with pytest.raises(StoreError, match="found no answer to the question before"):
                await store.settle(None)
        assert threading.active_count() == before + 1
        assert await asyncio.to_thread(lambda: 7) == 7  # others get on
        hangs.set()
        worker = store._worker
        assert worker is not None
        await asyncio.to_thread(worker.join, PATIENCE_S)
        monkeypatch.setattr(rosters, "ANSWER_S", PATIENCE_S)
        assert await store.settle(roster(1, 5)) == roster(1)  # the first one was written after all

    asyncio.run(story())
