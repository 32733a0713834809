"""Blocks on their way to gateways that are there, away, slow, silent, or refuse; without Spark."""

import gc
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from gateways import ANSWERS, MUTE, REFUSES, SILENT, Network, network
from sensorgrid.links.wire import fingerprint
from sensorgrid.model.grid import Grid
from sensorgrid.pipeline import jobs
from sensorgrid.pipeline.delivery import courier as courier_module
from sensorgrid.pipeline.delivery.courier import Courier
from sensorgrid.pipeline.delivery.gateway import Directory, Entrance, Exchange, Gateways, GatewaySink
from sensorgrid.pipeline.delivery.waiting import Counts, Name, WaitingFolder
from sensorgrid.pipeline.gridding.book import Timing
from sensorgrid.pipeline.gridding.measurements import empty
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.lake.tiles import Basis, Block, Identity, table_of
from sensorgrid.pipeline.settings import PipelineSettings, SinkSettings
from sensorgrid.pipeline.spark import stages
from servers import wait_for

GRID = Grid(shape=(32, 16), tick=5.0, resolution_bits=1, region_digits=2, attributes=("air_temperature",))
REGIONS = ("00", "01", "10", "11")
WRITER = "streamtest"


def block(tick: int, region: str, revision: int = 0, attribute: str = "air_temperature") -> Block:
    values = np.arange(128, dtype=np.float32) + tick
    identity = Identity(attribute, tick, region, revision)
    return Block(
        identity, values, values / 8, 1, "nearest", empty(), np.empty(0, np.uint8), ("air_temperature",)
    )


@pytest.fixture
def brokers() -> Iterator[Network]:
    """Two, with two regions each."""
    with network(GRID, 2) as found:
        yield found


@contextmanager
def gateways_to(brokers: Network, patience_s: float = 60.0) -> Iterator[Gateways]:
    found = Gateways(entrance(brokers, patience_s))
    try:
        yield found
    finally:
        found.close()


def entrance(brokers: Network, patience_s: float = 2.0) -> Entrance:
    return Entrance(brokers.urls, patience_s=patience_s, grid=fingerprint(brokers.grid))


def test_each_block_reaches_the_owner_of_its_region_with_its_error(brokers: Network) -> None:
    blocks = [block(tick, region) for tick in (7, 8) for region in REGIONS]

    with gateways_to(brokers) as gateways:
        found = gateways.publish(blocks)

    assert (found.acknowledged, found.refused, found.waiting) == (8, [], [])
    for broker, regions in zip(brokers.brokers, (("00", "10"), ("01", "11")), strict=True):
        expected = [("air_temperature", tick, region, 0) for tick in (7, 8) for region in regions]
        assert broker.names() == broker.names(error=True) == expected
        publish = broker.taken[0]
        assert publish.shape == (8, 16)
        assert np.array_equal(broker.values[publish].ravel(), blocks[0].values)
        errors = [p for p in broker.taken if p.attribute == 1]
        assert np.array_equal(broker.values[errors[0]].ravel(), blocks[0].error)


def test_a_block_that_rests_on_nothing_says_so_to_gateways_that_understand_it(brokers: Network) -> None:
    brokers.brokers[1].version = 2
    points = 128
    nothing = Basis(np.zeros(points, np.uint8), np.full(points, np.nan, np.float32), None, None, "prior")
    held = replace(nothing, age_s=np.full(points, 90.0, np.float32), gaps="hold")
    seen = replace(held, observations=np.ones(points, np.uint8))
    with gateways_to(brokers) as gateways:
        for tick, basis in enumerate((nothing, held, seen)):
            gateways.publish([replace(block(tick, region), basis=basis) for region in ("00", "01")])

    newer, older = ([(p.tick, p.silent_s) for p in broker.taken] for broker in brokers.brokers)
    said = {0: float("inf"), 1: 90.0, 2: None}
    assert sorted(newer) == sorted((tick, said[tick]) for tick in said for _ in ("values", "error"))
    assert {silent_s for _, silent_s in older} == {None}
    assert len(older) == 6


def test_connections_last_from_one_batch_to_the_next(brokers: Network) -> None:
    with gateways_to(brokers) as gateways:
        for tick in range(20):
            gateways.publish([block(tick, region) for region in REGIONS])

    assert len(brokers.names()) == 80
    assert [broker.greeted for broker in brokers.brokers] == [1, 1]


def test_the_same_block_again_is_acknowledged_and_kept_once(brokers: Network) -> None:
    with gateways_to(brokers) as gateways:
        found = [gateways.publish([block(1, "00")]).acknowledged for _ in range(3)]

    assert found == [1, 1, 1]
    assert brokers.names() == [("air_temperature", 1, "00", 0)]


def test_a_broker_that_is_away_gives_its_blocks_back_and_holds_nobody_up(brokers: Network) -> None:
    brokers.brokers[1].stop()
    with gateways_to(brokers, patience_s=600.0) as gateways:
        begin = time.monotonic()

        found = gateways.publish([block(1, region) for region in REGIONS])

    assert time.monotonic() - begin < 300, "nobody waits for a connection that was refused"
    assert found.acknowledged == 2
    assert {i.region for i in found.waiting} == {"01", "11"}


@pytest.mark.parametrize("mood", [SILENT, MUTE])
def test_a_silent_broker_costs_the_patience_and_no_more(brokers: Network, mood: str) -> None:
    with gateways_to(brokers, patience_s=1.0) as gateways:
        brokers.brokers[1].mood = mood
        begin = time.monotonic()

        found = gateways.publish([block(tick, region) for tick in range(1, 31) for region in REGIONS])

    with (
        warnings.catch_warnings()
    ):  # a handshake that is given up leaves its socket to the garbage: collect it here
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    assert 0.9 < time.monotonic() - begin < 50, "one patience for all, not one for each of sixty blocks"
    assert found.acknowledged == 60
    assert {i.region for i in found.waiting} == {"01", "11"}
    assert {name[2] for name in brokers.names()} == {"00", "10"}


def test_the_first_broker_asked_may_be_away(brokers: Network) -> None:
    brokers.brokers[0].stop()

    with gateways_to(brokers) as gateways:
        found = gateways.publish([block(1, region) for region in REGIONS])

    assert found.acknowledged == 2
    assert {i.region for i in found.waiting} == {"00", "10"}


def test_blocks_of_a_gateway_that_is_behind_are_not_sent_past_older_ones(brokers: Network) -> None:
    with gateways_to(brokers) as gateways:
        found = gateways.publish([block(2, region) for region in REGIONS], frozenset(["01"]))

    assert found.acknowledged == 2
    assert {i.region for i in found.waiting} == {"01", "11"}, "region 11 has the same gateway"
    assert brokers.brokers[1].taken == []


def test_a_refusal_is_for_ever_and_has_a_reason(brokers: Network) -> None:
    brokers.brokers[1].mood = REFUSES

    with gateways_to(brokers) as gateways:
        found = gateways.publish([block(1, region) for region in REGIONS])

    assert (found.acknowledged, found.waiting) == (2, [])
    assert {i.region: reason for i, reason in found.refused} == {
        "01": "found an old epoch, expected a newer one",
        "11": "found an old epoch, expected a newer one",
    }


def test_an_attribute_that_the_network_lacks_is_refused_without_asking(brokers: Network) -> None:
    with gateways_to(brokers) as gateways:
        found = gateways.publish([block(1, "00", attribute="rain")])

    ((identity, reason),) = found.refused
    assert identity.attribute == "rain"
    assert "found none of this name" in reason


def test_after_a_change_of_owner_the_new_one_is_asked(brokers: Network) -> None:
    with gateways_to(brokers) as gateways:
        gateways.publish([block(1, region) for region in REGIONS])
        brokers.owner, brokers.epoch = (lambda cell: 0), 2

        found = gateways.publish([block(2, region) for region in REGIONS])

    assert (found.acknowledged, found.refused, found.waiting) == (4, [], [])
    assert [name for name in brokers.brokers[0].names() if name[1] == 2] == [
        ("air_temperature", 2, region, 0) for region in REGIONS
    ]


def test_a_block_whose_owner_changed_is_sent_again_even_if_another_route_learnt_first(
    brokers: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = Exchange.deliver

    async def learning(self: Exchange, *args: Any) -> Any:
        found = await deliver(self, *args)
        await self.learn()  # for a block of another region, before this one's refusal is looked at
        return found

    with gateways_to(brokers) as gateways:
        gateways.publish([block(1, region) for region in REGIONS])
        brokers.owner, brokers.epoch = (lambda cell: 0), 2
        monkeypatch.setattr(Exchange, "deliver", learning)

        found = gateways.publish([block(2, region) for region in REGIONS])

    assert (found.acknowledged, found.refused, found.waiting) == (4, [], [])


def test_a_block_of_which_nothing_could_be_sent_waits(
    brokers: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Directory, "publishes", lambda *_: [])

    with gateways_to(brokers) as gateways:
        found = gateways.publish([block(1, "00")])

    assert (found.acknowledged, [i.region for i in found.waiting]) == (0, ["00"])


def test_another_grid_is_told_before_anything_is_sent(brokers: Network) -> None:
    other = Entrance(brokers.urls, patience_s=1.0, grid="another")

    gateways = Gateways(other)
    found = gateways.publish([block(1, "00")])
    gateways.close()

    assert [i.region for i in found.waiting] == ["00"]
    assert brokers.names() == []


def test_later_blocks_of_a_task_do_not_pass_those_that_it_gave_back(
    brokers: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "BLOCKS_TOGETHER", 4)
    sink, lake = GatewaySink(entrance(brokers, 3.0)), Lake(str(tmp_path / "lake")).create()
    job = stages.Job(GRID, Timing(1.0, 10.0, 60.0), {}, lake, sink, WRITER)

    def batches() -> Iterator[pa.RecordBatch]:
        brokers.brokers[1].mood = SILENT
        yield from (stages._row(stages.BLOCK, block(1, region).encode()) for region in REGIONS)
        brokers.brokers[1].mood = ANSWERS
        yield from (stages._row(stages.BLOCK, block(2, region).encode()) for region in REGIONS)

    rows = [row for out in stages.write_task(batches(), job, 0, 0) for row in out.to_pylist()]

    waiting = stages.unacknowledged([(row["kind"], row["payload"]) for row in rows])
    assert {(i.tick, i.region) for i in waiting} == {(1, "01"), (1, "11"), (2, "01"), (2, "11")}
    assert brokers.brokers[1].taken == []


# the courier


class Desk:
    """A lake, the waiting folder and a courier, as a pipeline has them."""

    def __init__(self, folder: Path, brokers: Network) -> None:
        self.lake = Lake(str(folder / "lake")).create()
        self.waiting = WaitingFolder(str(folder / "waiting"), WRITER)
        self.entrance = entrance(brokers)
        self.said: list[str] = []

    def publish(self, batch: int, blocks: list[Block]) -> None:
        """What a batch does whose gateways do not answer."""
        self.lake.write("tiles", table_of(blocks, GRID), ("attribute", "day"), WRITER, batch, 0)
        self.waiting.add(batch, [b.identity for b in blocks])

    def courier(self) -> Courier:
        return Courier(self.waiting, self.lake, GRID, self.entrance, self.said.append)

    def until_empty(self) -> Counts:
        wait_for(lambda: not self.waiting.names(), "all blocks to be brought")
        return self.waiting.counts()


@pytest.fixture
def desk(tmp_path: Path, brokers: Network, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(courier_module, "RETRY_S", (0.05, 0.3))
    return Desk(tmp_path, brokers)


def test_the_courier_brings_what_waits_in_the_order_of_ticks(brokers: Network, desk: Desk) -> None:
    for batch in range(6):
        desk.publish(batch, [block(batch, r) for r in REGIONS] + [block(batch - 1, "00", revision=1)])

    with desk.courier():
        counts = desk.until_empty()

    assert (counts.waiting, counts.acknowledged, counts.refused) == (0, 30, 0)
    assert [n[1] for n in brokers.names() if n[2] == "11"] == list(range(6))
    in_order = [(tick, revision) for _, tick, region, revision in brokers.names() if region == "00"]
    assert in_order == [(t - r, r) for t in range(6) for r in (1, 0)]
    taken = brokers.brokers[0].taken[0]
    assert np.array_equal(brokers.brokers[0].values[taken].ravel()[:2] % 1, [0, 0])


def test_a_broker_away_for_long_gets_everything_later_and_others_at_once(
    brokers: Network, desk: Desk
) -> None:
    brokers.brokers[1].stop()
    for batch in range(5):
        desk.publish(batch, [block(batch, region) for region in REGIONS])

    with desk.courier():
        wait_for(lambda: len(brokers.brokers[0].names()) == 10, "the blocks of the broker that is there")
        wait_for(lambda: desk.waiting.behind() == {"01", "11"}, "the regions that are behind")
        brokers.brokers[1].start()
        counts = desk.until_empty()

    assert counts.acknowledged == 20
    assert [n[1] for n in brokers.names() if n[2] == "01"] == list(range(5))
    assert any("trying on" in line for line in desk.said)
    assert any("answers again" in line for line in desk.said)


def test_a_broker_that_comes_and_goes_takes_each_block_once(brokers: Network, desk: Desk) -> None:
    for batch in range(30):
        desk.publish(batch, [block(batch, region) for region in REGIONS])
    brokers.brokers[1].delay_s = 0.02

    with desk.courier():
        for _ in range(3):
            seen = len(brokers.brokers[1].taken)
            wait_for(lambda seen=seen: len(brokers.brokers[1].taken) > seen, "a little progress")
            brokers.brokers[1].stop()
            brokers.brokers[1].start()
        counts = desk.until_empty()

    assert counts.acknowledged == 120
    assert len(set(brokers.names())) == len(brokers.names()) == 120
    assert sorted(brokers.names()) == sorted(brokers.names(error=True))


def test_refusals_become_dead_letters_with_their_reason_and_the_courier_goes_on(
    brokers: Network, desk: Desk
) -> None:
    brokers.brokers[1].mood = REFUSES
    desk.publish(0, [block(0, region) for region in REGIONS])

    with desk.courier():
        desk.until_empty()
        brokers.brokers[1].mood = ANSWERS
        desk.publish(1, [block(1, region) for region in REGIONS])
        counts = desk.until_empty()

    assert (counts.acknowledged, counts.refused, counts.waiting) == (6, 2, 0)
    letters = desk.lake.letters().to_pylist()
    assert sorted(row["raw"] for row in letters) == [
        '["air_temperature", 0, "01", 0]',
        '["air_temperature", 0, "11", 0]',
    ]
    assert {row["reason"] for row in letters} == {"found an old epoch, expected a newer one"}
    assert any("refused" in line for line in desk.said)


def test_a_courier_that_was_stopped_goes_on_where_it_was(brokers: Network, desk: Desk) -> None:
    brokers.brokers[1].mood = SILENT
    for batch in range(4):
        desk.publish(batch, [block(batch, region) for region in REGIONS])
    with desk.courier():
        wait_for(lambda: brokers.brokers[1].ignored > 0, "the courier to have tried")
        wait_for(lambda: desk.waiting.behind() == {"01", "11"}, "the others to be done")
    brokers.brokers[1].mood = ANSWERS

    with desk.courier():
        counts = desk.until_empty()

    assert counts.acknowledged == 16
    assert [n[1] for n in brokers.names() if n[2] == "01"] == list(range(4))


def test_blocks_that_the_lake_has_lost_do_not_hold_up_the_rest(
    brokers: Network, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier_module, "MISSING_S", 0.5)
    desk.waiting.add(0, [Identity("air_temperature", 0, "00", 0)])
    desk.publish(1, [block(1, "00")])

    with desk.courier():
        counts = desk.until_empty()

    assert (counts.acknowledged, counts.refused) == (1, 1)
    assert "does not have it" in desk.lake.letters()["reason"].to_pylist()[0]


def test_an_outage_longer_than_the_memory_of_the_lake_is_waited_for_once(
    brokers: Network, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier_module, "MISSING_S", 2.0)
    for batch in range(60):
        desk.waiting.add(batch, [Identity("air_temperature", batch, "00", 0)])
    desk.publish(60, [block(60, "00")])

    with desk.courier():
        begin = time.monotonic()
        counts = desk.until_empty()

    assert (counts.acknowledged, counts.refused) == (1, 60)
    assert time.monotonic() - begin < 100, "not 2 s for each of them"


@pytest.mark.parametrize("damage", ["", "{}", '{"identities": [1', "[]"])
def test_a_bundle_that_cannot_be_read_is_made_again_from_the_lake(
    brokers: Network, desk: Desk, damage: str
) -> None:
    for batch in range(3):
        desk.publish(batch, [block(batch, "00"), block(batch, "10")])
    file = Path(desk.waiting.root, "00", f"{WRITER}-0000000001.json")
    file.write_text(damage)
    assert desk.waiting.counts().waiting == 5

    with desk.courier():
        counts = desk.until_empty()

    assert (counts.acknowledged, counts.refused) == (6, 0)
    assert [n[1] for n in brokers.names() if n[2] == "00"] == [0, 1, 2]
    assert [p.read_text() for p in Path(desk.waiting.root).glob("unreadable-*")] == [damage]
    assert len([line for line in desk.said if "set aside, 1 blocks" in line]) == 1


def test_a_damaged_file_of_the_lake_is_told_once_and_holds_up_no_other_region(
    brokers: Network, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, read = [], Lake._grids_in

    def tried(self: Lake, paths: list[str], wanted: set[Identity]) -> Any:
        tries.extend(wanted)
        return read(self, paths, wanted)

    monkeypatch.setattr(Lake, "_grids_in", tried)
    desk.publish(0, [block(0, "00")])
    (file,) = Path(desk.lake.root, "tiles").rglob("*.parquet")
    whole = file.read_bytes()
    file.write_bytes(b"PAR1 and no more")
    desk.publish(1, [block(1, "01")])

    with desk.courier():
        wait_for(lambda: desk.waiting.behind() == {"00"}, "the other region")
        wait_for(lambda: len([i for i in tries if i.region == "00"]) > 3, "several tries")
        told = [line for line in desk.said if "courier: region 00: " in line]
        file.write_bytes(whole)
        counts = desk.until_empty()

    assert len(told) == 1
    assert counts.acknowledged == 2


@pytest.mark.parametrize("damage", ["", "[]", '{"before": 3}', '{"before": [1'])
def test_counts_that_cannot_be_read_begin_anew(tmp_path: Path, damage: str) -> None:
    waiting = WaitingFolder(str(tmp_path), WRITER)
    for batch in range(2):
        waiting.add(batch, [Identity("a", batch, "00", 0)])
    (tmp_path / "done.json").write_text(damage)

    waiting.forget_after(1)
    assert waiting.counts().waiting == 2
    bring(waiting, 0, "00")

    assert (waiting.counts().waiting, waiting.counts().acknowledged) == (1, 1)


def test_joined_files_of_the_lake_are_found(brokers: Network, desk: Desk) -> None:
    for batch in range(3):
        desk.publish(batch, [block(batch, "00")])
        desk.lake.write_ledger(WRITER, batch, {"batch": batch})
    assert desk.lake.compact(keep_batches=0) > 0

    with desk.courier():
        counts = desk.until_empty()

    assert counts.acknowledged == 3


def test_a_folder_that_cannot_be_listed_for_a_while_does_not_end_the_courier(
    brokers: Network, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind, faults = WaitingFolder.behind, iter([OSError("stale handle")] * 3)

    def listed(self: WaitingFolder) -> frozenset[str]:
        if threading.current_thread() is not threading.main_thread() and (fault := next(faults, None)):
            raise fault
        return behind(self)

    monkeypatch.setattr(WaitingFolder, "behind", listed)
    desk.publish(0, [block(0, region) for region in REGIONS])

    with desk.courier():
        counts = desk.until_empty()

    assert counts.acknowledged == 4
    assert [line for line in desk.said if "stale handle" in line] == ["courier: stale handle; trying on"]


def test_a_courier_that_died_ends_the_job(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: WaitingFolder) -> frozenset[str]:
        raise AssertionError("ours")

    query = SimpleNamespace(isActive=True, status={"isTriggerActive": False}, stop=lambda: None)
    monkeypatch.setattr(WaitingFolder, "behind", broken)
    monkeypatch.setattr(jobs, "_start", lambda *_: query)
    sink = GatewaySink(desk.entrance)
    job = stages.Job(GRID, Timing(1.0, 10.0, 60.0), {}, desk.lake, sink, WRITER)
    nothing: Any = None

    with desk.courier() as courier, pytest.raises(jobs.JobError, match=r"courier: found it dead .*ours"):
        jobs._watch(
            nothing, nothing, job, PipelineSettings(), threading.Event(), 20.0, None, print, print,
            jobs.JobOutcome(), courier,
        )  # fmt: skip


# the list of what waits


def bring(waiting: WaitingFolder, batch: int, region: str) -> None:
    """What the courier does with a bundle of one block."""
    bundle = waiting.read(Name(WRITER, batch, region))
    assert bundle is not None
    waiting.settle(replace(bundle, identities=(), acknowledged=1))


def test_batches_that_were_not_committed_are_forgotten_with_their_counts(tmp_path: Path) -> None:
    waiting = WaitingFolder(str(tmp_path), WRITER)
    for batch in range(4):
        waiting.add(batch, [Identity("a", batch, "00", 0), Identity("a", batch, "01", 0)])
    bring(waiting, 1, "00")
    bring(waiting, 3, "00")

    waiting.forget_after(2)

    counts = waiting.counts()
    left = [(name.batch, name.region) for name in waiting.names()]
    assert left == [(0, "00"), (2, "00"), (0, "01"), (1, "01"), (2, "01")]
    assert (counts.waiting, counts.acknowledged) == (5, 1)
    assert counts.regions == {"00": 2, "01": 3}


def test_a_checkpoint_without_its_commits_is_refused_and_what_waits_is_kept(tmp_path: Path) -> None:
    waiting = WaitingFolder(str(tmp_path / "waiting"), WRITER)
    for batch in (0, 12):
        waiting.add(batch, [Identity("a", batch, "00", 0)])

    with pytest.raises(jobs.JobError, match=r"found no commits, though blocks of its batch 12 wait"):
        jobs._forget_uncommitted(waiting, str(tmp_path / "checkpoint"))

    assert waiting.counts().waiting == 2


def test_a_first_batch_that_was_not_committed_is_forgotten(tmp_path: Path) -> None:
    waiting = WaitingFolder(str(tmp_path / "waiting"), WRITER)
    waiting.add(0, [Identity("a", 0, "00", 0)])

    jobs._forget_uncommitted(waiting, str(tmp_path / "checkpoint"))

    assert waiting.counts().waiting == 0


def test_a_new_checkpoint_finds_what_the_stream_before_it_left(tmp_path: Path) -> None:
    def waiting(checkpoint: str, writer: str) -> WaitingFolder:
        settings = PipelineSettings(
            lake=str(tmp_path / "lake"),
            checkpoint=str(tmp_path / checkpoint),
            sink=SinkSettings(kind="gateway", urls=("ws://localhost:1",)),
        )
        found = jobs.job_of(settings, writer).waiting
        assert found is not None
        return found

    waiting("one", "streamone").add(3, [Identity("a", 1, "00", 0)])

    assert waiting("two", "streamtwo").behind() == {"00"}


def test_what_an_earlier_stream_left_comes_first_and_is_not_forgotten(tmp_path: Path) -> None:
    WaitingFolder(str(tmp_path), "streamzz").add(7, [Identity("a", 1, "00", 0)])
    waiting = WaitingFolder(str(tmp_path), WRITER)
    waiting.add(0, [Identity("a", 2, "00", 0)])

    waiting.forget_after(-1)
    waiting.add(0, [Identity("a", 2, "00", 0)])

    assert waiting.names() == [Name("streamzz", 7, "00"), Name(WRITER, 0, "00")]


def test_what_several_earlier_streams_left_comes_in_the_order_of_their_ticks(tmp_path: Path) -> None:
    for writer, batch, tick in (("streamaa", 5, 30), ("streamzz", 7, 10), ("streammm", 2, 20)):
        WaitingFolder(str(tmp_path), writer).add(batch, [Identity("a", tick, "00", 0)])
    waiting = WaitingFolder(str(tmp_path), WRITER)
    waiting.add(0, [Identity("a", 5, "00", 0)])

    assert [name.writer for name in waiting.names_of("00")] == ["streamzz", "streammm", "streamaa", WRITER]


def test_what_is_behind_is_told_by_folders_however_much_waits(tmp_path: Path) -> None:
    waiting = WaitingFolder(str(tmp_path), WRITER)
    for batch in range(50):
        waiting.add(batch, [Identity("a", batch, region, 0) for region in REGIONS])

    looked = pafs.LocalFileSystem().get_file_info(pafs.FileSelector(str(tmp_path)))

    assert waiting.behind() == set(REGIONS)
    assert sorted(info.base_name for info in looked) == list(REGIONS)
    assert [name.batch for name in waiting.names_of("01")] == list(range(50))


def test_a_folder_that_a_crash_left_empty_is_removed_and_one_with_bundles_is_not(
    brokers: Network, desk: Desk
) -> None:
    Path(desk.waiting.root, "01").mkdir(parents=True)
    desk.publish(0, [block(0, "00")])
    desk.waiting.leave("00")
    assert desk.waiting.behind() == {"00", "01"}

    with desk.courier():
        wait_for(lambda: not desk.waiting.behind(), "no region to be behind")

    assert desk.waiting.counts().acknowledged == 1


def test_a_bundle_is_kept_though_the_folder_goes_again_and_again(tmp_path: Path) -> None:
    waiting = WaitingFolder(str(tmp_path), WRITER)
    over = threading.Event()

    def leaving() -> None:
        while not over.wait(0.0005):  # as often as can be without never letting anybody else in
            waiting.leave("00")

    courier = threading.Thread(target=leaving)
    courier.start()
    try:
        for batch in range(200):
            waiting.add(batch, [Identity("a", batch, "00", 0)])
            bundle = waiting.read(Name(WRITER, batch, "00"))
            assert bundle is not None
            waiting._delete(bundle.name)
    finally:
        over.set()
        courier.join()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")], "half-done files"


@pytest.mark.parametrize("what", [FileNotFoundError, FileExistsError])
def test_a_folder_that_goes_while_it_is_made_is_made_again(
    what: type[OSError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow says of a folder that is removed between two looks that there is a file in its place."""
    waiting, write, failures = WaitingFolder(str(tmp_path), WRITER), WaitingFolder.write_text, [what, what]

    def once_more(self: WaitingFolder, name: str, text: str) -> None:
        if failures:
            raise failures.pop()()
        write(self, name, text)

    monkeypatch.setattr(WaitingFolder, "write_text", once_more)

    waiting.add(3, [Identity("a", 3, "00", 0)])

    bundle = waiting.read(Name(WRITER, 3, "00"))
    assert bundle is not None
    assert len(bundle.identities) == 1


def test_counts_of_old_batches_are_added_up(tmp_path: Path) -> None:
    waiting = WaitingFolder(str(tmp_path), WRITER)
    for batch in range(100):
        waiting.add(batch, [Identity("a", batch, "00", 0)])
        bring(waiting, batch, "00")

    assert waiting.counts().acknowledged == 100
    assert len((tmp_path / "done.json").read_text()) < 1000
