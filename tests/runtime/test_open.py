"""Open networks of real processes: brokers join, leave, die for good, are stopped for a while; streams stay exact."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from command import call
from nets import run_in_real_time, until, write_lake
from runtime.test_processes import COMMAND, WORLD, Processes, admitted
from sensorgrid.configuration.network import Network, read_network
from sensorgrid.links import wire
from sensorgrid.links.driver import Peer, greet
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.roster import Roster
from sensorgrid.runtime.rosters import RosterStore
from servers import PATIENCE_S, free_port, listens, running, wait_for

ANSWER_S = 3.0
"""how long the test waits for a broker to take a block; then it is sent again, perhaps to another"""
CONFIG = """
lake = "lake"
[grid]
shape = [64, 32]
resolution_bits = 2
region_digits = 3
tick = "1s"
[network]
open = true
policy = "never"
"""


class OpenProcesses(Processes):
    """The test is the pipeline, which follows the roster in the store."""

    def __init__(self, network: Network, config: Path, stack: ExitStack) -> None:
        super().__init__(network, dict.fromkeys(network.addresses, config), stack)
        self.store = RosterStore(network.lake)
        self.folder = config.parent
        self.lacking: set[tuple[int, int, int]] = set()

    @property
    def roster(self) -> Roster:
        found = self.store.newest()
        assert found is not None
        return found

    def join(self, number: int, *more: str) -> None:
        """Another broker, which is told where one is, and nothing else."""
        command = (*COMMAND, "broker", "--join", self.url(0), "--id", str(number), *more)
        log = self.folder / f"broker-{number}.log"
        self.processes[number] = self.stack.enter_context(running(*command, log=log))
        wait_for(lambda: PeerId(number) in self.roster.by_id, f"broker {number} to be a member, see {log}")

    def url(self, number: int) -> str:
        """Where a broker listens."""
        return self.roster.by_id[PeerId(number)].url

    async def publish(self, ticks: int = 1) -> None:
        """The next ticks: to whoever owns a region now; what nobody takes is in the lake, and is sent again."""
        for _ in range(ticks):
            regions = self.roster.regions
            self.lacking |= {(r.attribute, r.cell, self.tick) for r in regions}
            self.tick += 1
            for region in regions:
                for tick in sorted(
                    t for a, c, t in self.lacking if (a, c) == (region.attribute, region.cell)
                ):
                    if await self._sent(region, tick):
                        self.lacking.discard((region.attribute, region.cell, tick))
                    else:
                        break

    async def _sent(self, region: object, tick: int) -> bool:
        from sensorgrid.overlay.geography import box_of

        r: wire.Region = region  # type: ignore[assignment]
        try:
            peer = await self._publisher(r.owner)
        except Exception:
            return False
        box = box_of(self.network.grid, r.cell)
        values = self.truth(self.network.grid, r.attribute, tick)[box.y0 : box.y1, box.x0 : box.x1]
        block = wire.Publish(r.attribute, r.cell, tick, 0, r.epoch, (values.shape[0], values.shape[1]))
        if peer.link is None or peer.gone is not None:
            return False
        begin, key = len(self.acks), (r.attribute, r.cell, tick)
        peer.link.send(wire.encode_publish(block, values))

        def answers() -> list[wire.Ack]:
            return [ack for ack in self.acks[begin:] if (ack.attribute, ack.cell, ack.tick) == key]

        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while not answers() and peer.gone is None:
                    await asyncio.sleep(0.002)
        if not answers():
            peer.close()
            self._publishers.pop(r.owner, None)
        return any(not ack.error for ack in answers())

    async def _publisher(self, owner: PeerId) -> Peer:
        known = self._publishers.get(owner)
        if known is None or known.gone is not None:
            hello = wire.Hello(wire.VERSIONS, wire.PUBLISHER)
            async with asyncio.timeout(2):
                _, known = await greet(self.url(owner), hello, timeout_s=2)
            known.serve(self._told, lambda reason: None)
            self._publishers[owner] = known
        return known

    def running(self) -> set[int]:
        """Brokers whose processes have not ended."""
        return {n for n, process in self.processes.items() if process.poll() is None}


@contextmanager
def open_network(folder: Path, count: int) -> Iterator[OpenProcesses]:
    with ExitStack() as stack:
        config = folder / "grid.toml"
        brokers = "".join(
            f'[[network.brokers]]\nid = {n}\nurl = "ws://127.0.0.1:{free_port()}"\n' for n in range(count)
        )
        config.write_text(CONFIG + brokers)
        net = OpenProcesses(read_network(config), config, stack)
        net.launch(*range(count))
        yield net


async def tick(net: OpenProcesses) -> None:
    """Lake first, then whoever owns a region."""
    net.network = replace(net.network, roster=net.roster)
    write_lake(net, net.folder / "lake", net.tick + 1)
    await net.publish()
    await asyncio.sleep(0.5)


def end(process: subprocess.Popen[bytes], which: int) -> None:
    os.kill(process.pid, which)
    process.wait(PATIENCE_S)


def test_brokers_join_leave_and_die_and_every_client_gets_every_tick_once(tmp_path: Path) -> None:
    async def story(net: OpenProcesses) -> None:
        async with net:
            clients = [await net.client(at) for at in range(3)]
            queries = [await admitted(client, WORLD) for client in clients]
            for _ in range(2):
                await tick(net)
            await asyncio.to_thread(net.join, 3)
            while 3 not in {r.owner for r in net.roster.regions}:
                await tick(net)

            await asyncio.to_thread(end, net.processes[1], signal.SIGTERM)
            assert 1 not in net.roster.by_id
            assert 1 not in {r.owner for r in net.roster.regions}
            for _ in range(2):
                await tick(net)

            net.processes[2].kill()
            while 2 in net.roster.by_id:
                await tick(net)
            for _ in range(3):
                await tick(net)

            last = net.tick - 1
            while net.lacking:
                await net.publish(0)
                await tick(net)
            for client, query in zip(clients, queries, strict=True):
                await until(lambda c=client, q=query: c.has(WORLD, last, query=q), "the last tick")
                assert all(client.has(WORLD, t, query=query) for t in range(last + 1))
                assert all(client.is_true(t, query=query) for t in range(last + 1))
                assert client.doubled == 0
            assert net.running() == {0, 3}

    with open_network(tmp_path, 3) as net:
        run_in_real_time(lambda: story(net))
        assert listens(net.network.addresses[PeerId(0)].port)


def test_of_two_newcomers_with_one_number_the_second_gives_up(tmp_path: Path) -> None:
    with open_network(tmp_path, 1) as net:
        net.join(7)
        command = (*COMMAND, "broker", "--join", net.url(0), "--id", "7")

        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

        assert done.returncode == 2
        # The broker that it asks may not have heard of the newcomer yet; the store has.
        assert (
            "--id: found 7, expected one that is free" in done.stderr or "found another one at" in done.stderr
        )


@pytest.mark.long
def test_newcomers_that_come_at_once_get_numbers_of_their_own(tmp_path: Path) -> None:
    with open_network(tmp_path, 1) as net:
        for number in (1, 2, 3):
            command = (*COMMAND, "broker", "--join", net.url(0))
            log = tmp_path / f"newcomer-{number}.log"
            net.processes[number] = net.stack.enter_context(running(*command, log=log))

        wait_for(lambda: len(net.roster.by_id) == 4, "all of them to be members")
        assert net.running() == {0, 1, 2, 3}


def test_a_newcomer_that_does_not_see_the_lake_is_told_so_and_founds_nothing(tmp_path: Path) -> None:
    with open_network(tmp_path, 1) as net:
        elsewhere = tmp_path / "elsewhere"
        command = (*COMMAND, "broker", "--join", net.url(0), "--lake", str(elsewhere))

        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

        assert done.returncode == 2
        assert "found no roster, expected that of the network" in " ".join(done.stderr.split())
        assert not elsewhere.exists()


def test_brokers_that_were_stopped_together_while_they_left_are_members_again(tmp_path: Path) -> None:
    with open_network(tmp_path, 2) as net:
        for number in (0, 1):
            os.kill(net.processes[number].pid, signal.SIGTERM)
        for number in (0, 1):
            net.processes[number].wait(PATIENCE_S)
        net.launch(0, 1)

        wait_for(
            lambda: len(net.roster.by_id) == 2 and not any(m.leaving for m in net.roster.members),
            "both to stay",
        )
        wait_for(lambda: {r.owner for r in net.roster.regions} == {0, 1}, "both to own something")


@pytest.mark.long
def test_a_broker_whose_address_has_changed_is_found_there(tmp_path: Path) -> None:
    with open_network(tmp_path, 2) as net:
        end(net.processes[1], signal.SIGINT)
        config = tmp_path / "grid.toml"
        url = f"ws://127.0.0.1:{free_port()}"
        config.write_text(config.read_text().replace(net.url(1), url))
        net.network = read_network(config)
        net.launch(1)

        wait_for(lambda: net.roster.by_id[PeerId(1)].url == url, "the new address")
        # While it runs, nobody else can take its place by another address.
        config.write_text(config.read_text().replace(url, f"ws://127.0.0.1:{free_port()}"))
        again = (*COMMAND, "broker", str(config), "--id", "1")
        done = subprocess.run(again, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 2
        assert "found another one at" in done.stderr


def test_the_only_owner_does_not_leave_and_who_is_told_twice_waits_no_longer(tmp_path: Path) -> None:
    with open_network(tmp_path, 1) as net:
        net.join(1, "--relay")
        leave = (*COMMAND, "network", "leave", str(tmp_path / "grid.toml"), "0")
        done = subprocess.run(leave, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode != 0
        assert "found nobody else who stays and owns regions" in " ".join(done.stderr.split())

        end(net.processes[0], signal.SIGTERM)

        assert "not left" in (tmp_path / "broker-0.log").read_text()


@pytest.mark.parametrize("is_wss", [False, True])
def test_addresses_that_cannot_be_are_told(
    tmp_path: Path, is_wss: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = (
        (("--listen", "foo"), "--listen: found 'foo'"),
        (("--listen", "127.0.0.1:99999"), "--listen: found '127.0.0.1:99999'"),
        (("--url", "ws://127.0.0.1:abc"), "--url: found 'ws://127.0.0.1:abc'"),
        (("--url", "ws://127.0.0.1:99999"), "--url: found 'ws://127.0.0.1:99999'"),
        (("--url", "ws://0.0.0.0:7777"), "--url: found 'ws://0.0.0.0:7777'"),
        (("--url", "wss://127.0.0.1:7777"), "expected ws://"),
        (("--cert", "nowhere.pem"), "--cert: found it with ws://"),
    )
    tls = (((), "expected --cert and --key"), (("--ca", "nowhere.pem"), "--ca: found no file nowhere.pem"))
    with open_network(tmp_path, 1) as net:
        url = net.url(0).replace("ws://", "wss://") if is_wss else net.url(0)
        for arguments, words in tls if is_wss else wrong:
            done = call(monkeypatch, capsys, "broker", "--join", url, *arguments)

            assert done.returncode == 2
            assert words in " ".join(done.stderr.split())


@pytest.mark.long
def test_a_newcomer_of_a_network_with_tls_speaks_tls_too(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    config, port = tmp_path / "grid.toml", free_port()
    config.write_text(
        f'{CONFIG}[[network.brokers]]\nid = 0\nurl = "wss://127.0.0.1:{port}"\n'
        '[network.tls]\ncert_file = "cert.pem"\nkey_file = "key.pem"\nca_file = "ca.pem"\n'
    )
    with ExitStack() as stack:
        net = OpenProcesses(read_network(config), config, stack)
        net.launch(0)
        files = [f"--{name}={tmp_path / name}.pem" for name in ("cert", "key", "ca")]
        net.join(1, *files)
        wait_for(lambda: {r.owner for r in net.roster.regions} == {0, 1}, "the newcomer to own something")

        shown = subprocess.run(
            (*COMMAND, "network", "show", net.url(1), f"--ca={tmp_path / 'ca.pem'}"),
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert shown.returncode == 0, shown.stderr
        assert "wss://" in net.url(1)


@pytest.mark.long
def test_a_broker_that_was_stopped_for_long_comes_back(tmp_path: Path) -> None:
    async def story(net: OpenProcesses) -> None:
        async with net:
            client = await net.client(0)
            query = await admitted(client, WORLD)
            await tick(net)
            os.kill(net.processes[2].pid, signal.SIGSTOP)
            try:
                while 2 in net.roster.by_id:
                    await tick(net)
            finally:
                os.kill(net.processes[2].pid, signal.SIGCONT)
            while 2 not in {region.owner for region in net.roster.regions}:
                await tick(net)
            last = net.tick - 1
            while net.lacking:
                await tick(net)
            await until(lambda: client.has(WORLD, last, query=query), "the last tick")
            assert all(
                client.has(WORLD, t, query=query) and client.is_true(t, query=query) for t in range(last + 1)
            )
            assert client.doubled == 0

    with open_network(tmp_path, 3) as net:
        run_in_real_time(lambda: story(net))
