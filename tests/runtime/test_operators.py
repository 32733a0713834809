"""An operator over brokers that are real processes: its joint is killed, killed for good, and a broker joins."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sensorgrid
from nets import run_in_real_time, truth, until
from runtime.test_open import OpenProcesses, end, open_network, tick
from sensorgrid.client.connection import AsyncClient
from sensorgrid.model.ids import PeerId
from sensorgrid.operators.plan import compile
from sensorgrid.overlay.derived import StreamName, home_of
from sensorgrid.overlay.formulas import ResultFormula
from servers import PATIENCE_S

EXPRESSION = "mean(air_temperature)"


def homes(net: OpenProcesses) -> tuple[int, int]:
    """Who calculates the result, and who merges its one term."""
    result = ResultFormula(compile(EXPRESSION, net.network.grid))
    ((term, cell),) = result.inputs(1, net.roster)
    found = [home_of(StreamName(digest, cell), net.roster) for digest in (result.digest, term.digest)]
    assert found[0] is not None
    assert found[1] is not None
    return int(found[0]), int(found[1])


class Heard:
    """What a client hears of an operator, for as long as it listens."""

    def __init__(self, grid: AsyncClient) -> None:
        self.results = grid.watch(EXPRESSION, after=-1, revisions=True)
        self.got: list[tuple[int, int, float]] = []
        """tick, revision, value"""
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for result in self.results:
            self.got.append((result.tick.item(), result.attrs["revision"], result.item()))

    def whole(self, last: int) -> Callable[[], bool]:
        """Whether all ticks are complete."""
        return lambda: set(range(last + 1)) <= {t for t, revision, _ in self.got if revision == 0}

    def check(self, net: OpenProcesses, last: int) -> None:
        """Every tick in order, each once per revision, and in the end what NumPy says."""
        assert list(dict.fromkeys(t for t, _, _ in self.got if t <= last)) == list(range(last + 1))
        grid = net.network.grid
        latitude = -90 + (np.arange(grid.shape[1]) + 0.5) * 180 / grid.shape[1]
        weights = np.broadcast_to(np.cos(np.radians(latitude))[:, None], (grid.shape[1], grid.shape[0]))
        for at in range(last + 1):
            revisions = [revision for t, revision, _ in self.got if t == at]
            assert revisions == sorted(set(revisions))
            values = truth(grid, 0, at).astype(float)
            expected = float((values * weights).sum() / weights.sum())
            assert [v for t, _, v in self.got if t == at][-1] == pytest.approx(expected, rel=1e-6)

    def stop(self) -> None:
        self._task.cancel()
        self.results.close()


async def played(net: OpenProcesses, story: Callable[[], object]) -> None:
    """Clients at two brokers listen while something happens; in the end both have everything."""
    urls = [net.url(n) for n in sorted(net.roster.by_id)]
    async with net, await sensorgrid.aconnect(urls) as one, await sensorgrid.aconnect(urls[::-1]) as other:
        heard = [Heard(one), Heard(other)]
        for _ in range(2):
            await tick(net)
        await asyncio.wait_for(asyncio.ensure_future(story()), 4 * PATIENCE_S)  # type: ignore[arg-type]
        for _ in range(2):
            await tick(net)
        last = net.tick - 1
        while net.lacking:
            await net.publish(0)
            await tick(net)
        for who in heard:
            await until(who.whole(last), "all ticks, complete")
            who.check(net, last)
            who.stop()


def test_a_joint_is_killed_and_started_again(tmp_path: Path) -> None:
    with open_network(tmp_path, 3) as net:

        async def story() -> None:
            joint = homes(net)[1]
            net.kill(joint)
            await tick(net)
            await asyncio.to_thread(net.launch, joint)

        run_in_real_time(lambda: played(net, story))


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed for good", "leaves"])
@pytest.mark.parametrize("which", [0, 1], ids=["root", "joint"])
def test_a_root_or_joint_goes_and_a_broker_joins(tmp_path: Path, which: int, how: signal.Signals) -> None:
    with open_network(tmp_path, 4) as net:

        async def story() -> None:
            gone = homes(net)[which]
            await asyncio.to_thread(end, net.processes[gone], how)
            while PeerId(gone) in net.roster.by_id:
                await tick(net)
            if gone:  # the others join where the first one is
                await asyncio.to_thread(net.join, 9)
                while 9 not in {region.owner for region in net.roster.regions}:
                    await tick(net)

        run_in_real_time(lambda: played(net, story))
