"""Rosters over sockets: regions change hands while a network runs, and networks that contradict each other part."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

import sensorgrid
from nets import Client, Net, network, patient, run, until
from sensorgrid.index.cell import Cell
from sensorgrid.links import wire
from sensorgrid.links.driver import greet
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import Query
from sensorgrid.overlay.codec import encode
from sensorgrid.overlay.geography import box_of
from sensorgrid.overlay.messages import VERSION, Told
from sensorgrid.overlay.roster import Roster, RosterError, Terms
from sensorgrid.pipeline.delivery.gateway import Entrance, Exchange, again_if_moved, publish_once
from sensorgrid.pipeline.lake.tiles import Identity
from servers import PATIENCE_S

WORLD = Query("air_temperature")


def handed_over(roster: Roster, cells: Sequence[int], owner: int) -> Roster:
    """The next version, in which a broker has cells of all attributes."""
    later = roster
    for region in roster.regions:
        if region.cell in cells:
            later = later.handed_over(region.attribute, region.cell, PeerId(owner))
    return replace(later, version=roster.version + 1)


def promised(roster: Roster, cells: Sequence[int], heir: int) -> Roster:
    """The next version, in which a broker is to have them."""
    later = roster
    for region in roster.regions:
        if region.cell in cells:
            later = later.promised(region.attribute, region.cell, PeerId(heir))
    return replace(later, version=roster.version + 1)


@pytest.mark.parametrize("prepared", [True, False], ids=["with an heir", "at once"])
def test_a_region_changes_hands_under_load_and_nobody_notices(tmp_path: Path, prepared: bool) -> None:
    async def story() -> None:
        async with Net(patient(network(tmp_path))) as net:
            for at, roams in ((0, True), (1, False), (2, True)):
                (await net.client(at, roams)).pose(WORLD)
            await net.publish(2)
            for client in net.clients:
                await until(lambda c=client: c.has(WORLD, 1), "the first ticks")
            mine = [r.cell for r in net.network.roster.by_owner[PeerId(0)] if r.attribute == 0]

            if prepared:
                await change(net, promised(net.network.roster, mine, 3))
                await net.publish(1)
            await change(net, handed_over(net.network.roster, mine, 3))
            await net.publish(3)
            for client in net.clients:
                await until(lambda c=client: c.has(WORLD, net.tick - 1), "the last tick")

            for client in net.clients:
                assert [reply.status for reply in client.replies] == ["admitted"]
                assert (client.doubled, client.gaps) == (0, [])
                assert all(client.has(WORLD, t) and client.is_true(t) for t in range(net.tick))
                assert client.session.roster == net.network.roster
            assert {ack.code for ack in net.acks if isinstance(ack, wire.Ack)} == {""}

    run(story)


async def change(net: Net, roster: Roster) -> None:
    """One broker is told; all come to know."""
    net.network = replace(net.network, roster=roster)
    net.hosts[PeerId(1)].learn(roster)
    for host in net.hosts.values():
        await until(lambda h=host: h.roster == roster, "all brokers to know the roster")


def test_a_publisher_that_is_connected_hears_of_the_new_owner(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            exchange = Exchange(Entrance((net.url(2),), patience_s=PATIENCE_S))
            first = await exchange.learn()
            cell = net.network.roster.by_owner[PeerId(0)][0].cell

            await change(net, handed_over(net.network.roster, [cell], 3))
            await until(lambda: exchange.directory is not first, "the publisher to be told")

            assert exchange.directory is not None
            assert exchange.directory.roster == net.network.roster
            await exchange.close()

    run(story)


def test_a_block_under_another_epoch_is_refused_and_may_be_tried_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path)) as net:
            region = net.network.roster.by_owner[PeerId(0)][0]
            box = box_of(net.network.grid, region.cell)
            shape = (box.y1 - box.y0, box.x1 - box.x0)
            _, peer = await greet(net.url(0), wire.Hello(wire.VERSIONS, wire.PUBLISHER))
            answers: list[wire.Ack | wire.Newer] = []
            peer.serve(lambda m: answers.append(wire.decode_told(m)), lambda reason: None)
            assert peer.link is not None
            for epoch in (0, 10**15, 1):
                block = wire.Publish(region.attribute, region.cell, 0, 0, epoch, shape)
                peer.link.send(wire.encode_publish(block, np.zeros(shape, np.float32)))
            await until(lambda: len(answers) == 3, "three answers")

            codes = [a.code for a in answers if isinstance(a, wire.Ack)]
            assert codes == [wire.Refusal.STALE, wire.Refusal.STALE, ""]
            peer.close()
            await peer.ended.wait()

    run(story)


def test_a_publisher_ahead_of_everybody_ends_no_stream(tmp_path: Path) -> None:
    """What is acknowledged afterwards also arrives."""

    async def story() -> None:
        async with Net(patient(network(tmp_path, 2))) as net:
            client = await net.client(0)
            client.pose(WORLD)
            await net.publish(1)
            await until(lambda: client.has(WORLD, 0), "the first tick")
            region = net.network.roster.by_owner[PeerId(0)][0]
            box = box_of(net.network.grid, region.cell)
            shape = (box.y1 - box.y0, box.x1 - box.x0)
            _, peer = await greet(net.url(0), wire.Hello(wire.VERSIONS, wire.PUBLISHER))
            answers: list[wire.Ack | wire.Newer] = []
            peer.serve(lambda m: answers.append(wire.decode_told(m)), lambda reason: None)
            assert peer.link is not None
            block = wire.Publish(region.attribute, region.cell, 1, 0, 10**15, shape)
            peer.link.send(wire.encode_publish(block, np.zeros(shape, np.float32)))
            await until(lambda: answers, "an answer")

            await net.publish(2)
            await until(lambda: client.has(WORLD, 2), "the last tick")

            assert all(client.has(WORLD, t) and client.is_true(t) for t in range(3))
            peer.close()
            await peer.ended.wait()

    run(story)


def test_a_publisher_follows_a_network_that_began_anew_with_a_lower_version(tmp_path: Path) -> None:
    async def story() -> None:
        first = network(tmp_path, 3)
        cell = first.roster.by_owner[PeerId(0)][0].cell
        later = replace(first, roster=replace(handed_over(first.roster, [cell], 1), version=9))
        net = Net(later)
        async with net:
            exchange = Exchange(Entrance((net.url(2),), patience_s=PATIENCE_S))
            before = await exchange.learn()
            net.network = first
            await net.crash(2)
            await net.start(2)  # takes the newer one from the others
            await until(lambda: net.hosts[PeerId(2)].roster == later.roster, "one to be behind no longer")
            assert await exchange.doubt() == before
            for number in range(3):
                await net.crash(number)
            for number in range(3):
                await net.start(number)
            height, width = before.shape
            name = net.network.grid.attributes[0]
            block = Letter(Identity(name, 0, str(Cell(cell)), 0), np.zeros(height * width, np.float32))
            found = await publish_once(exchange, before, [block], frozenset(), PATIENCE_S)
            assert found.stale == [block.identity]

            found = await again_if_moved(exchange, before, [block], found, PATIENCE_S)

            assert (found.acknowledged, found.stale, found.waiting) == (1, [], [])
            assert exchange.directory is not None
            assert exchange.directory.roster == first.roster
            await exchange.close()

    run(story)


class Letter(NamedTuple):
    """What is handed over."""

    identity: Identity
    values: np.ndarray
    silent_s: float | None = None

    @property
    def error(self) -> np.ndarray:
        """As large."""
        return self.values


@pytest.mark.parametrize("code", ["settings", "regions"])
def test_brokers_that_contradict_each_other_part_and_say_where(tmp_path: Path, code: str) -> None:
    logged: list[dict[str, str]] = []

    async def story() -> None:
        plan = network(tmp_path, 2)
        if code == "settings":
            settings = replace(plan.settings, ring_ticks=32)
            roster = replace(plan.roster, terms=Terms.of(plan.grid, settings))
        else:
            settings = plan.settings
            swapped = tuple(
                type(r)(r.attribute, r.cell, PeerId(1 - r.owner), r.epoch) for r in plan.roster.regions
            )
            roster = replace(plan.roster, regions=swapped)
        net = Net(plan, log=lambda event, **fields: logged.append({"event": event, **fields}))
        async with net:
            await net.crash(1)
            net.network = replace(plan, settings=settings, roster=roster)
            await net.start(1)
            await until(lambda: any(line.get("code") for line in logged), "a refusal")

            assert {line["code"] for line in logged if "code" in line} == {code}
            expected = {"settings": "ring_ticks: found", "regions": "regions of roster 1: found"}[code]
            assert any(line["reason"].startswith(expected) for line in logged if "code" in line)
            assert not net.hosts[PeerId(0)].driver.peers

    run(story)


def test_a_roster_with_other_terms_or_of_the_same_version_is_not_taken(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 2)) as net:
            host, held = net.hosts[PeerId(0)], net.network.roster
            other = Terms.of(net.network.grid, replace(net.network.settings, ring_ticks=32))

            with pytest.raises(RosterError, match="ring_ticks: found 32, expected 64"):
                host.learn(replace(held, version=2, terms=other))
            with pytest.raises(RosterError, match="expected all as in roster 1"):
                host.learn(replace(held, version=2, regions=held.regions[1:]))
            with pytest.raises(RosterError, match="regions of roster 1"):
                host.learn(replace(handed_over(held, [held.regions[0].cell], 1), version=1))

            assert host.roster == held
            host.learn(held)  # nothing new
            host.learn(replace(held, version=3))
            with pytest.raises(RosterError, match="found version 2, expected one above 3"):
                host.learn(replace(held, version=2))

    run(story)


STRANGER = 500


def test_a_stranger_that_claims_a_newer_roster_is_not_let_in(tmp_path: Path) -> None:
    """Its number is in no roster that anybody here knows. Those whom the broker knows are asked."""

    async def story() -> None:
        async with Net(network(tmp_path, 2)) as net:
            client = await net.client(0)
            client.pose(WORLD)
            await net.publish(1)
            await until(lambda: client.has(WORLD, 0), "the first tick")
            held, host = net.network.roster, net.hosts[PeerId(0)]
            await until(lambda: host.driver.peers.get(PeerId(1)), "the brokers to be connected")
            asked = host.broker.kernel.counters.messages.get("Holds", 0)
            newer = replace(held, version=2).summary

            with pytest.raises(wire.RefusedError, match="broker 500: expected another one") as refused:
                await greet(net.url(0), wire.Hello(wire.VERSIONS, wire.BROKER, STRANGER, roster=newer))

            assert refused.value.code == wire.NoConnection.UNKNOWN
            assert host.broker.kernel.counters.messages["Holds"] > asked
            assert PeerId(STRANGER) not in host.driver.peers

    run(story)


def test_a_broker_that_tells_nonsense_is_shown_the_door(tmp_path: Path) -> None:
    async def story() -> None:
        async with Net(network(tmp_path, 3)) as net:
            held = net.network.roster
            nobody = tuple(msgspec.structs.replace(r, owner=PeerId(77), epoch=2) for r in held.regions)
            below = tuple(msgspec.structs.replace(r, cell=-5) for r in held.regions)
            await net.crash(0)
            for regions in (nobody, below, ()):
                told = Told.of(replace(held, version=2, regions=regions))
                _, peer = await greet(net.url(2), wire.Hello(wire.VERSIONS, wire.BROKER, 0))
                assert peer.link is not None
                peer.link.send(encode(told))
                async with asyncio.timeout(PATIENCE_S):
                    await peer.ended.wait()
                assert net.hosts[PeerId(2)].roster == held
            assert not any(host.driver.failed.done() for host in net.hosts.values())

    run(story)


def test_an_owner_that_was_removed_while_it_was_away_steps_down(tmp_path: Path) -> None:
    """Nobody lets it in any more, but all say why."""

    async def story() -> None:
        async with Net(network(tmp_path, 3)) as net:
            plan = net.network
            mine = [r.cell for r in plan.roster.by_owner[PeerId(0)] if r.attribute == 0]
            await net.crash(0)
            later = handed_over(plan.roster, mine, 2)
            later = replace(later, members=tuple(m for m in later.members if m.id != 0))
            await change(net, later)
            net.network = plan  # the old file
            await net.start(0)

            host = net.hosts[PeerId(0)]
            await until(lambda: host.roster == later, "it to hear of the roster")

            supplies = host.broker.boards.outlets.supplies
            assert not any(supply.owned for cells in supplies.values() for supply in cells.values())

    run(story)


def test_two_versions_of_the_wire_side_by_side(tmp_path: Path) -> None:
    """Brokers can be upgraded one by one: half of them, a client and a publisher speak the older version."""

    async def story() -> None:
        async with Net(patient(network(tmp_path))) as net:
            for number in (1, 2):
                await net.crash(number)
                net.options = {"versions": (1,)}
                await net.start(number)
            old = wire.Hello((1,), wire.CLIENT)
            net.clients.append(await Client.at(net.url(0), True, old))
            for at in range(4):
                await net.client(at, roams=at % 2 == 0)
            for client in net.clients:
                client.pose(WORLD)
            await net.publish(3)
            for client in net.clients:
                await until(lambda c=client: c.has(WORLD, net.tick - 1), "the last tick")

            assert {p.version for p in net.hosts[PeerId(1)].driver.peers.values()} == {1}
            assert {p.version for p in net.hosts[PeerId(0)].driver.peers.values()} == {1, VERSION}
            for client in net.clients:
                assert [reply.status for reply in client.replies] == ["admitted"]
                assert all(client.is_true(t) for t in range(net.tick))

    run(story)


def test_a_client_dials_a_broker_that_it_was_not_told_of_at_first(tmp_path: Path) -> None:
    """The roster that names a new owner also says where it is."""

    async def story() -> None:
        plan = patient(network(tmp_path, 3))
        two = replace(plan.roster, members=plan.roster.members[:2])
        cells = [r.cell for r in two.by_owner[PeerId(2)] if r.attribute == 0]
        net = Net(replace(plan, roster=handed_over(two, cells, 1)))
        async with net, await sensorgrid.aconnect(net.url(0)) as grid:
            stream = grid.stream(WORLD, after=-1)
            await net.publish(1)
            await anext(stream)

            mine = [r.cell for r in net.network.roster.by_owner[PeerId(1)] if r.attribute == 0]
            later = handed_over(net.network.roster, mine, 2)
            net.network = replace(plan, roster=replace(later, members=plan.roster.members))
            await net.start(2)
            await change(net, net.network.roster)
            await net.publish(2)
            await anext(stream)
            await anext(stream)

            assert grid.brokers.keys() == {0, 1, 2}
            assert grid.roster == net.network.roster
            assert stream.status == "running"

    run(story)
