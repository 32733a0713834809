"""The whole product in an open network: Spark, eight brokers, clients; brokers join, leave, die for good, are stopped.

Nobody restarts anything, the pipeline least of all, and every client gets every tick once, bit-equal to a batch.
"""

import os
import signal
import subprocess
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.test_chaos import AFTER_S, COMMAND, QUERIES, STAGE, Clients, _now, compare
from sensorgrid.configuration.network import read_network
from sensorgrid.demo.stage import write_configuration
from sensorgrid.model.ids import PeerId
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import read_settings
from sensorgrid.runtime.rosters import RosterStore
from servers import running, wait_for

STOPPED_S = 30.0
"""a process that is stopped for so long is taken for dead"""


@pytest.mark.long
def test_a_network_changes_under_load_and_nobody_misses_anything(tmp_path: Path) -> None:
    stage = replace(STAGE, brokers=8)
    config = write_configuration(stage, tmp_path)
    config.write_text(config.read_text().replace("[network]\n", "[network]\nopen = true\n"))
    settings, network = read_settings(config), read_network(config)
    Lake(settings.lake).create().save_plan(stage.plan(settings, time.time()))
    store = RosterStore(network.lake)
    with ExitStack() as stack:
        brokers: dict[int, subprocess.Popen[bytes]] = {}

        def start(number: int, *options: str) -> None:
            command = (*COMMAND, "broker", *options, "--id", str(number))
            brokers[number] = stack.enter_context(running(*command, log=tmp_path / f"broker-{number}.log"))

        for number in range(8):
            start(number, str(config))
        pipeline = stack.enter_context(
            running(*COMMAND, "pipeline", "run", str(config), log=tmp_path / "pipeline.log")
        )
        wait_for(lambda: Lake(settings.lake).has_tiles(), "the first grid, see pipeline.log", 180)
        first = _now(config) + 1
        clients = Clients(tmp_path, first, [address.url for address in network.addresses.values()])
        stack.callback(clients.stop)
        clients.keep()

        def everybody_has(tick: int) -> bool:
            assert pipeline.poll() is None, (tmp_path / "pipeline.log").read_text()[-3000:]
            clients.keep()
            return all(set(range(first, tick + 1)) <= set(clients.ticks(n)) for n in range(len(QUERIES)))

        def members() -> set[int]:
            roster = store.newest()
            return set() if roster is None else set(roster.by_id)

        wait_for(lambda: everybody_has(first), "the first tick", AFTER_S)
        start(8, "--join", network.addresses[PeerId(0)].url)
        start(9, "--join", network.addresses[PeerId(3)].url)
        wait_for(lambda: {8, 9} <= members(), "two newcomers", 60)
        for number in (1, 5):
            brokers[number].send_signal(signal.SIGTERM)
        brokers[2].kill()
        for number in (1, 5):
            brokers[number].wait(90)
        brokers[6].kill()
        os.kill(brokers[4].pid, signal.SIGSTOP)
        wait_for(lambda: not {1, 2, 5, 6} & members(), "those who left and died to be removed", 90)
        stopped = time.monotonic()
        while time.monotonic() < stopped + STOPPED_S:
            clients.keep()
            time.sleep(0.5)
        os.kill(brokers[4].pid, signal.SIGCONT)
        wait_for(lambda: members() == {0, 3, 4, 7, 8, 9}, "the one that was stopped to be back", 90)
        last = _now(config) + 1
        wait_for(lambda: everybody_has(last), f"all ticks to {last}", AFTER_S)
        clients.stop()
        roster = store.newest()
        assert roster is not None
        assert {region.owner for region in roster.regions} <= {0, 3, 4, 7, 8, 9}
        pipeline.send_signal(signal.SIGTERM)
        pipeline.wait(120)
        for number in (0, 3, 4, 7, 8, 9):
            brokers[number].send_signal(signal.SIGINT)
            brokers[number].wait(60)
    compare(tmp_path, config, first, last)
