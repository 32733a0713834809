"""Brokers as processes: killed without mercy, cut off from each other, told to stop."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from command import call
from nets import Client, Net, run_in_real_time, until, write_lake
from proxies import Wire
from sensorgrid.cli.broker import broker
from sensorgrid.configuration.network import Network, read_network
from sensorgrid.links.observer import Observer
from sensorgrid.model.ids import PeerId
from sensorgrid.model.query import Query
from sensorgrid.overlay.roster import Roster
from servers import PATIENCE_S, free_port, listens, running, wait_for

WORLD = Query("air_temperature")
COARSE = Query("air_temperature", resolution=(1 / 2, 1 / 2, 1))
COMMAND = (sys.executable, "-c", "from sensorgrid.cli.main import run; run()")


def write_config(file: Path, urls: dict[int, str], ports: dict[int, int], alive: str = "1s") -> Path:
    brokers = "".join(
        f'[[network.brokers]]\nid = {n}\nurl = "{url}"\nlisten = "127.0.0.1:{ports[n]}"\n'
        for n, url in urls.items()
    )
    file.write_text(
        'lake = "lake"\n[grid]\nshape = [64, 32]\nresolution_bits = 2\nregion_digits = 2\ntick = "1s"\n'
        f'[network]\npolicy = "never"\nalive = "{alive}"\n{brokers}'
    )
    return file


class Processes(Net):
    """Brokers as processes; the test is the pipeline."""

    def __init__(self, network: Network, configs: dict[int, Path], stack: ExitStack) -> None:
        super().__init__(network)
        self.configs = configs
        self.stack = stack
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def launch(self, *numbers: int) -> None:
        """Start brokers side by side; they listen when this returns."""
        for number in numbers:
            config = self.configs[number]
            command = (*COMMAND, "broker", str(config), "--id", str(number))
            log = config.parent / f"broker-{number}.log"
            self.processes[number] = self.stack.enter_context(running(*command, log=log))
        for number in numbers:
            port = self.network.addresses[PeerId(number)].port
            wait_for(lambda p=port: listens(p), f"broker {number} to listen")
            self.hosts[PeerId(number)] = None  # type: ignore[assignment]

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait(PATIENCE_S)
        del self.hosts[PeerId(number)]
        self._publishers.pop(PeerId(number), None)

    async def __aenter__(self) -> "Processes":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.hang_up()


@contextmanager
def brokers(
    folder: Path, count: int = 4, cut: tuple[int, int] | None = None
) -> Iterator[tuple[Processes, list[Wire]]]:
    """Broker processes; with `cut`, the wires between two of them can be cut.

    Only then does silence mean anything: the end of a process ends its connections, and one that has to wait for the
    processor for some seconds is not gone.
    """
    alive = "1s" if cut else "1m"
    with ExitStack() as stack:
        ports = {n: free_port() for n in range(count)}
        urls = {n: f"ws://127.0.0.1:{port}" for n, port in ports.items()}
        config = write_config(folder / "grid.toml", urls, ports, alive)
        configs, wires = dict.fromkeys(range(count), config), []
        for me, other in [cut, cut[::-1]] if cut else []:
            wire = stack.enter_context(Wire(ports[other]))
            wires.append(wire)
            seen = urls | {other: f"ws://127.0.0.1:{wire.port}"}
            configs[me] = write_config(folder / f"grid-{me}.toml", seen, ports, alive)
        net = Processes(read_network(config), configs, stack)
        net.launch(*range(count))
        yield net, wires


async def tick(net: Processes, folder: Path) -> None:
    """Lake first, then the gateways that are there."""
    write_lake(net, folder / "lake", net.tick + 1)
    await net.publish()


async def admitted(client: Client, ask: Query) -> int:
    """The number of a query once it is admitted: a broker that falls silent for seconds before that has it refused."""
    query = 1
    client.pose(ask, query=query)
    while client.status != "admitted":
        await until(lambda: client.status != "pending", "an answer")
        if client.status == "refused":
            client.replies.clear()
            query += 1
            client.pose(ask, query=query)
    return query


async def linked(net: Processes, one: int, other: int, are: bool = True) -> None:
    """Until two brokers are connected, as both see it; or until neither is."""
    for me, peer in ((one, other), (other, one)):
        observer = Observer(net.url(me), timeout_s=PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            while (peer in (await observer.ask()).peers) != are:
                await asyncio.sleep(0.05)
        observer.close()


def test_streams_are_exact_through_random_kills_of_brokers(tmp_path: Path) -> None:
    rng = Random(7)

    async def story(net: Processes) -> None:
        async with net:
            asks = [(WORLD, 0, False), (COARSE, 1, False), (WORLD, 2, True)]
            for ask, at, roams in asks:
                (await net.client(at, roams)).pose(ask)
            await tick(net, tmp_path)
            for (
                client
            ) in net.clients:  # one that is not admitted yet when its broker dies is refused, and told why
                await until(lambda c=client: c.status == "admitted", "all to be admitted")
            for _ in range(5):
                victim = rng.randrange(4)
                net.kill(victim)
                for _ in range(rng.randrange(3)):
                    await tick(net, tmp_path)
                await asyncio.to_thread(net.launch, victim)
                await tick(net, tmp_path)
            last = net.tick - 1
            for client, (ask, _, _) in zip(net.clients, asks, strict=True):
                await until(lambda c=client, a=ask: c.has(a, last), "the last tick")

            for client, (ask, _, _) in zip(net.clients, asks, strict=True):
                assert all(client.has(ask, t) and client.is_true(t) for t in range(net.tick))
                assert (client.doubled, client.gaps) == (0, [])

    with brokers(tmp_path) as (net, _):
        run_in_real_time(lambda: story(net))


@pytest.mark.parametrize("in_vain", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("roams", [False, True])
def test_a_partition_between_two_brokers_loses_nothing(tmp_path: Path, roams: bool, in_vain: bool) -> None:
    """It lasts until both have found their connection broken; in the long form, until every dial was in vain, too."""

    async def story(net: Processes, wires: list[Wire]) -> None:
        async with net:
            client = await net.client(at=0, roams=roams)
            query = await admitted(client, WORLD)
            await tick(net, tmp_path)
            await until(lambda: client.has(WORLD, 0, query=query), "the first tick")
            await linked(net, 0, 1)
            for wire in wires:
                wire.cut = True
            await tick(net, tmp_path)
            await linked(net, 0, 1, are=False)
            log = tmp_path / "broker-0.log"
            await until(lambda: not in_vain or "cannot reach peer=1" in log.read_text(), "a last dial")
            for _ in range(5):
                await tick(net, tmp_path)
            for wire in wires:
                wire.cut = False
            await tick(net, tmp_path)
            await until(lambda: client.has(WORLD, net.tick - 1, query=query), "the last tick")

            assert all(
                client.has(WORLD, t, query=query) and client.is_true(t, query=query) for t in range(net.tick)
            )
            assert (client.doubled, client.gaps) == (0, [])

    with brokers(tmp_path, cut=(0, 1)) as (net, wires):
        run_in_real_time(lambda: story(net, wires))


def test_processes_hand_over_a_region_when_one_reads_its_file_again(tmp_path: Path) -> None:
    async def story(net: Processes) -> None:
        async with net:
            for at, roams in ((0, True), (1, False)):
                (await net.client(at, roams)).pose(WORLD)
            await tick(net, tmp_path)
            for client in net.clients:
                await until(lambda c=client: c.has(WORLD, 0), "the first tick")
            for version in (2, 3):
                await reread(net, version)
                for _ in range(2):
                    await tick(net, tmp_path)
                    for client in net.clients:
                        await until(lambda c=client: c.has(WORLD, net.tick - 1), "each tick before the next")

            for client in net.clients:
                assert [reply.status for reply in client.replies] == ["admitted"]
                assert (client.doubled, client.gaps) == (0, [])
                assert all(client.is_true(t) for t in range(net.tick))

    async def reread(net: Processes, version: int) -> None:
        """Version 2 makes broker 3 the heir of broker 0's region, version 3 makes it the owner."""
        config = net.configs[0]
        text = config.read_text()
        if version == 2:
            text = text.replace("[network]\n", "[network]\nversion = 2\n")
            tables = text.split("[[network.brokers]]\n")
            shares = ['["00"]', '["01"]', '["10"]', '["11"]\ninherits = ["00"]']
            tables[1:] = [t + f"regions = {s}\n" for t, s in zip(tables[1:], shares, strict=True)]
            text = "[[network.brokers]]\n".join(tables)
        else:
            text = text.replace("version = 2", "version = 3").replace('regions = ["00"]', "regions = []")
            text = text.replace('regions = ["11"]\ninherits = ["00"]', 'regions = ["00", "11"]')
        config.write_text(text)
        net.processes[2].send_signal(signal.SIGHUP)
        net.network = read_network(config)
        for number in range(4):
            log = tmp_path / f"broker-{number}.log"
            await until(lambda p=log: f"roster version={version}" in p.read_text(), "all to know the roster")

    with brokers(tmp_path) as (net, _):
        run_in_real_time(lambda: story(net))


def test_a_broker_that_is_told_to_stop_ends_cleanly_and_soon(tmp_path: Path) -> None:
    with brokers(tmp_path, 1) as (net, _):
        process = net.processes[0]

        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE_S) == 0
        assert not listens(net.network.addresses[PeerId(0)].port)
        assert "stopped" in (tmp_path / "broker-0.log").read_text()


def test_a_broker_that_is_told_to_read_its_file_while_it_starts_does_so_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path / "grid.toml", {0: "ws://127.0.0.1:7400"}, {0: 7400})
    happened: list[str] = []

    class Starting:
        """A host that is told while it starts; then it is told to stop."""

        def __init__(self, *_: object, **__: object) -> None:
            self.driver = self

        async def start(self) -> None:
            loop = asyncio.get_running_loop()
            self.failed: asyncio.Future[None] = loop.create_future()
            loop.call_later(PATIENCE_S, os.kill, os.getpid(), signal.SIGTERM)  # or it waits for ever
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)
            happened.append("started")

        def learn(self, roster: Roster) -> None:
            happened.append(f"roster {roster.version}")
            os.kill(os.getpid(), signal.SIGTERM)

        async def stop(self) -> None:
            happened.append("stopped")

    def read(path: Path) -> Network:
        if not happened:  # for the first time
            happened.append("read")
            os.kill(os.getpid(), signal.SIGHUP)
        return read_network(path)

    monkeypatch.setattr("sensorgrid.runtime.host.Host", Starting)
    monkeypatch.setattr("sensorgrid.configuration.network.read_network", read)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        broker(config, 0, quiet=True)
    finally:
        signal.signal(signal.SIGHUP, before)

    assert happened == ["read", "started", "roster 1", "stopped"]


def test_the_command_does_not_end_by_a_signal_while_it_is_imported() -> None:
    script = "import sys; sys.argv[1:] = ['broker']; import signal, sensorgrid.cli as _;"
    script += "print(signal.getsignal(signal.SIGHUP).name)"

    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert said.stdout.strip() == "SIG_IGN"


def test_mistakes_are_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "grid.toml", {0: "ws://127.0.0.1:7400"}, {0: 7400})
    odd = tmp_path / "odd.toml"
    odd.write_text(config.read_text().replace("ws://", "http://"))
    unknown = tmp_path / "unknown.toml"
    unknown.write_text(config.read_text().replace("policy", "polici"))

    for arguments, expected in (
        (("broker", tmp_path / "none.toml"), "found no such file"),
        (("broker", config, "--id", 5), "--id: found 5, expected one of the brokers"),
        (("broker", odd), "found 'http://127.0.0.1:7400', expected one such as ws://"),
        (("broker", unknown), "network.polici: found a key that is not known"),
    ):
        done = call(monkeypatch, capsys, *arguments)
        assert done.returncode == 2
        assert expected in done.stderr.replace("\n", " ")
        assert "Traceback" not in done.stderr


def test_a_port_in_use_is_told_in_words(tmp_path: Path) -> None:
    with brokers(tmp_path, 1) as (net, _):
        command = (*COMMAND, "broker", str(net.configs[0]))
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

        assert done.returncode == 1
        assert "address already in use" in done.stderr.lower()
        assert "Traceback" not in done.stderr
