"""The demo from beginning to end: build the stage, let it play, kill a broker, stop, look again, judge."""

import asyncio
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from sensorgrid.configuration.network import Network, read_network
from sensorgrid.demo import checks
from sensorgrid.demo.checks import Fields, JoinedBroker, OperatorFacts, Outage, Result
from sensorgrid.demo.listening import DemoClient
from sensorgrid.demo.processes import CLI, Crew, run_once
from sensorgrid.demo.report import size_of, utc
from sensorgrid.demo.stage import DemoStage, Guest, audience, axes_of, free_ports, write_configuration
from sensorgrid.demo.view import TRAFFIC_MAX, BrokerLine, GuestLine, Scene
from sensorgrid.demo.watching import NAME, DemoWatcher
from sensorgrid.links import wire
from sensorgrid.links.observer import Observer
from sensorgrid.model.errors import SensorGridError
from sensorgrid.model.ids import PeerId
from sensorgrid.operators.numbers import Number
from sensorgrid.overlay.roster import Roster
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import read_settings
from sensorgrid.runtime.rosters import RosterStore
from sensorgrid.runtime.supervisor import SupervisedPart

PIPELINE = "pipeline"
BROKERS_S = 90.0
"""how long the brokers may take to come up"""
FIRST_GRID_S = 240.0
"""how long Spark may take to the first grid"""
CATCH_UP_S = 40.0
"""how long it may then take until a tick is there before the next one has ended"""
ADMISSION_S = 3.0
"""how long a client may take to be served before the next one comes"""
LAST_TICKS_S = 60.0
"""how long the last ticks may take after their time"""
POLL_S = 0.5


class DemoError(SensorGridError, RuntimeError):
    """A demo that cannot go on."""


class Show:
    """One demo. `scene` is what can be seen of it at any time."""

    def __init__(self, stage: DemoStage, folder: Path, seconds: float) -> None:
        self.stage, self.folder = stage, folder
        self.seconds = seconds
        self.scene = Scene(seconds=seconds)
        self.guests: tuple[Guest, ...] = audience()
        self.listeners: list[DemoClient] = []
        self.watcher: DemoWatcher | None = None
        self.outage: Outage | None = None
        self.config = write_configuration(stage, folder)
        self.network: Network = read_network(self.config)
        self.began_s = time.time()
        self.start_s = 0.0
        """when the first tick begins whose delay counts"""
        self.start = self.begin = 0
        """first tick that is asked for, and that there is"""
        self.first = self.last = 0
        """first and last tick whose delays count"""
        self.traffic: list[tuple[float, int, int]] = []
        """(time, bytes between brokers, without sharing)"""
        self.statuses: dict[PeerId, wire.Status] = {}
        """the last of each broker"""
        self._past: dict[PeerId, list[wire.Status]] = {}
        """the last words of lives that ended"""
        self._delays: list[float] = []
        self._replies: dict[tuple[str, str], list[str]] = {}
        """what clients were told since the last look, and which"""
        self._caught_up = False
        """whether a tick has reached a client before the next one had ended"""
        self.earth = stage.earth()
        logs = folder / "logs"
        logs.mkdir(exist_ok=True)
        self._spark = Crew(
            [SupervisedPart(PIPELINE, (*CLI, "pipeline", "run", str(self.config)), grace_s=20.0)], logs
        )
        commands = {n: (*CLI, "broker", str(self.config), "--id", str(n)) for n in self.network.addresses}
        self._brokers = Crew(
            [SupervisedPart(_name(n), command, asks_with=signal.SIGINT) for n, command in commands.items()],
            logs,
        )
        self._observers = {n: Observer(a.url, timeout_s=2.0) for n, a in self.network.addresses.items()}
        self.newcomer = PeerId(max(self.network.addresses) + 1)
        """the broker that joins"""
        url = f"ws://127.0.0.1:{free_ports(1)[0]}"
        others = ",".join(address.url for address in self.network.addresses.values())
        joins = ("broker", "--join", others, "--url", url)
        part = SupervisedPart(
            _name(self.newcomer), (*CLI, *joins, "--id", str(self.newcomer)), asks_with=signal.SIGINT
        )
        self._newcomers = Crew([part], logs)
        self._newcomer_url = url
        self.joined: JoinedBroker | None = None

    # -- the play

    async def play(self) -> None:
        """Everything up to the last tick; processes are stopped whatever happens."""
        try:
            self._stage("starting Spark and the brokers")
            self.scene.brokers = [BrokerLine(n) for n in self.network.addresses]
            self.scene.guests = [GuestLine(g.name, g.broker) for g in self.guests]
            self._show_truth()
            await self._calibrated()
            self._spark.start()
            await self._brokers_up()
            await self._guests_in()
            await self._first_grid()
            await self._perform()
        finally:
            self._stage("stopping")
            await asyncio.gather(*(listener.stop() for listener in self.listeners))
            if self.watcher is not None:
                await self.watcher.stop()
            for observer in self._observers.values():
                observer.close()
            await self._spark.stop()  # before the brokers: it would wait for them
            await asyncio.gather(self._brokers.stop(), self._newcomers.stop())

    def _stage(self, text: str) -> None:
        self.scene.stage = text

    def _say(self, text: str, style: str = "") -> None:
        self.scene.happened(time.time() - self.began_s, text, style)

    async def _calibrated(self) -> None:
        """Fit parameters to the minute before, as a pipeline that runs for longer has done by itself."""
        settings = read_settings(self.config)
        lake = Lake(settings.lake).create()
        lake.save_plan(await asyncio.to_thread(self.stage.plan, settings, time.time()))

    async def _brokers_up(self) -> None:
        # What has to be compiled, once, is compiled once: the brokers then find it.
        await run_once(["sensorgrid.demo.compiling"], self.folder / "logs" / "compiling.log")
        self._brokers.start()
        deadline, waiting = time.monotonic() + BROKERS_S, set(self.network.addresses)
        while waiting:
            for number in sorted(waiting):
                if await self._observers[number].status() is not None:
                    waiting.discard(number)
                    self.line(number).state = "up"
            if time.monotonic() > deadline:
                name = _name(min(waiting))
                raise DemoError(
                    f"{name}: found no answer, expected one within {BROKERS_S:g} s; its last words:\n"
                    + self._brokers.last_words(name)
                )
            self._spark.check(PIPELINE)
            await asyncio.sleep(0.2)
        self._say(f"{len(self.network.addresses)} brokers are up", "green")

    def line(self, number: PeerId) -> BrokerLine:
        """What is shown of a broker."""
        return next(line for line in self.scene.brokers if line.number == number)

    async def _guests_in(self) -> None:
        """Clients come one after the other, those who want most first: who comes later finds what is there."""
        self._stage("clients come in")
        self.start = int(time.time() // self.stage.tick_s)
        owners = checks.owners_of(self.network.grid, self.network.regions)
        listeners = [
            DemoClient(guest, place, self.network, owners != guest.broker, self._ticked, self._replied)
            for place, guest in enumerate(self.guests)
        ]
        self.listeners = listeners
        for listener in sorted(listeners, key=lambda li: -li.tally.points):
            listener.listen(self.start)
            deadline = time.monotonic() + ADMISSION_S
            while listener.state != "admitted" and time.monotonic() < deadline:
                self._spark.check(PIPELINE)
                await asyncio.sleep(0.01)
        self._say(
            f"{sum(li.state == 'admitted' for li in listeners)} clients have posed their queries", "green"
        )
        self.watcher = DemoWatcher(self.network, self.stage.attributes[0], self._calculated)
        self.watcher.watch(self.start)

    async def _first_grid(self) -> None:
        self._stage("Spark makes its first grid")
        deadline = time.monotonic() + FIRST_GRID_S
        while not any(listener.tally.complete_s for listener in self.listeners):
            if time.monotonic() > deadline:
                raise DemoError(
                    f"pipeline: found no grid, expected one within {FIRST_GRID_S:g} s; its last words:\n"
                    + self._spark.last_words(PIPELINE)
                )
            await self._look()
        plan = Lake(str(self.folder / "lake")).plan()
        assert plan is not None, "the pipeline has made one before its first grid"
        self.begin = max(self.start, plan.start_tick)
        self._stage("Spark catches up")
        deadline = time.monotonic() + CATCH_UP_S
        while not self._caught_up and time.monotonic() < deadline:
            await self._look()

    async def _look(self) -> None:
        """See how all are, and wait a little."""
        self._spark.check(PIPELINE)
        await self._poll()
        await asyncio.sleep(POLL_S)

    async def _perform(self) -> None:
        tick_s = self.stage.tick_s
        # Ticks that end from now on: what Spark makes up for after its start is not what it is like.
        self.first = int(time.time() // tick_s)
        self.start_s = self.first * tick_s
        self._stage("streaming")
        join_at = self.start_s + max(tick_s, self.seconds / 8)
        kill_at = self.start_s + max(2 * tick_s, self.seconds / 3)
        end = self.start_s + self.seconds
        # However short it is, some ticks follow the kill.
        self.last = max(int((end - 2 * tick_s) // tick_s), int(kill_at // tick_s) + 2)
        while True:
            now = time.time()
            self.scene.elapsed_s = now - self.start_s
            if self.joined is None and self.stage.open and now >= join_at:
                self._join()
            if self.outage is None and now >= kill_at:
                await self._kill()
            if now >= end:
                self._stage("waiting until nothing can change any more")
                closed = (self.last + 1) * tick_s + self.stage.settle_s + self.stage.lateness_s
                if (now >= closed + 2 * tick_s and self._complete()) or now >= end + LAST_TICKS_S:
                    break
            await self._look()
        await self._poll()

    def _complete(self) -> bool:
        """Whether every client has every tick that counts, the lake has closed them, and the newcomer serves."""
        there = self.joined is None or self.joined.serves_s is not None
        return there and all(
            checks.missing_points(li.tally, self.begin, self.last) == 0 for li in self.listeners
        )

    def _ticked(self, listener: DemoClient, tick: int) -> None:
        """A client has a tick."""
        delay_s = time.time() - (tick + 1) * self.stage.tick_s
        line = self.scene.guests[listener.place]
        line.ticks += 1
        line.delay_s = delay_s
        line.hit = False
        self._caught_up = self._caught_up or delay_s < self.stage.tick_s
        if self.first and tick >= self.first:
            self._delays.append(delay_s)
        if listener.place == 0:
            self._show_map(listener, tick)

    def _calculated(self, tick: int, result: Number) -> None:
        """The operator has a result."""
        assert self.watcher is not None
        cost = self.watcher.forecast(self.network.roster)
        self.scene.result_text = (
            f"{result.value - 273.15:.2f} ± {result.error:.2f} °C; {size_of(cost.bytes)} a tick between brokers"
            f" instead of {size_of(cost.raw_bytes)}"
        )

    def _show_truth(self) -> None:
        """Something to look at until the first grid is there."""
        lon, lat = axes_of(self.network.grid)
        values = self.earth.truth(self.stage.attributes[0], lon[None, :], lat[:, None], time.time()) - 273.15
        low, high = np.percentile(values, [1, 99])
        scene = self.scene
        scene.shown, scene.limits = values.astype(np.float32), (float(np.floor(low)), float(np.ceil(high)))
        scene.title, scene.unit = "the truth, which nobody but the demo knows", "°C"

    def _show_map(self, listener: DemoClient, tick: int) -> None:
        attribute = self.network.grid.attributes.index(self.stage.attributes[0])
        values = listener.tally.received[tick, attribute].values - 273.15
        scene = self.scene
        if not scene.tick_text:
            self._say("the first tick has reached a client", "green")
        scene.shown = values
        scene.title = "air temperature at 'world model'"
        scene.tick_text = f"{utc((tick + 1) * self.stage.tick_s):%H:%M:%S} UTC"

    def _replied(self, listener: DemoClient, status: str, reason: str) -> None:
        self.scene.guests[listener.place].state = status
        if status != "admitted":
            self._replies.setdefault((status, reason), []).append(listener.guest.name)

    def _tell_replies(self) -> None:
        """One line for all who were told the same."""
        replies, self._replies = self._replies, {}
        for (status, reason), names in replies.items():
            who = names[0] if len(names) == 1 else f"{len(names)} clients"
            style = "green" if status == "resumed" else "yellow"
            self._say(f"{who}: {status}{f', {reason}' if reason else ''}", style)

    # -- what brokers say

    async def _poll(self) -> None:
        self._tell_replies()
        found = await asyncio.gather(*(o.status() for o in self._observers.values()))
        now = time.time()
        for number, status in zip(self._observers, found, strict=True):
            line = self.line(number)
            if status is None:
                if line.state == "up":
                    line.state = "starts"
                continue
            if line.state != "up":
                line.state = "up"
                if self.outage is not None and self.outage.broker == number and self.outage.back_s is None:
                    self.outage = replace(self.outage, back_s=now)
                    self._say(f"broker {number} is back after {now - self.outage.at_s:.1f} s", "green")
            self._note(number, status)
        self._look_at_newcomer(now)
        scene = self.scene
        scene.between, scene.alone = self.between(), self._alone()
        self.traffic.append((now, scene.between, scene.alone))
        if len(self.traffic) % 2 == 0 and self.first:
            before = self.traffic[max(0, len(self.traffic) - 1 - round(self.stage.tick_s / POLL_S))]
            span = max(now - before[0], POLL_S)
            scene.traffic.append(((scene.between - before[1]) / span, (scene.alone - before[2]) / span))
            del scene.traffic[:-TRAFFIC_MAX]
        scene.points = sum(li.tally.delivered for li in self.listeners)
        scene.doubled = sum(li.tally.doubled for li in self.listeners)
        scene.delay_p50_s = checks.percentile(self._delays, 0.5)
        for number in self.everybody:
            line = self.line(number)
            sent = self.sent(number)
            line.rate = 0.7 * line.rate + 0.3 * (sent - line.sent) / POLL_S
            line.sent = sent

    def _note(self, number: PeerId, status: wire.Status) -> None:
        before = self.statuses.get(number)
        if before is not None and status.up_s < before.up_s:
            self._past.setdefault(number, []).append(before)
        self.statuses[number] = status
        line = self.line(number)
        line.clients = status.clients
        line.streams_in = sum(1 for s in status.streams if s.path is None or len(s.path) > 1)
        line.streams_out = sum(len(s.brokers) for s in status.streams)

    def lives(self, number: PeerId) -> list[wire.Status]:
        """The last words of every life of a broker."""
        now = self.statuses.get(number)
        return [*self._past.get(number, ()), *([] if now is None else [now])]

    def sent(self, number: PeerId) -> int:
        """Bytes of values that a broker has sent to brokers, in all its lives."""
        return sum(sum(s.values_bytes.values()) for s in self.lives(number))

    def restarts(self, number: PeerId) -> int:
        """How often a broker was started again."""
        crew = self._newcomers if number == self.newcomer else self._brokers
        return crew.restarts(_name(number))

    def between(self) -> int:
        """Bytes of values that brokers have sent to brokers."""
        return sum(self.sent(number) for number in self.everybody)

    def _alone(self) -> int:
        return sum(checks.bytes_alone(li.tally) for li in self.listeners)

    @property
    def everybody(self) -> tuple[PeerId, ...]:
        """The brokers of the file, and the one that joined."""
        return tuple(self._observers)

    @property
    def roster(self) -> Roster:
        """Who owns what now."""
        found = RosterStore(self.network.lake).newest() if self.stage.open else None
        return found or self.network.roster

    # -- the newcomer

    def _join(self) -> None:
        """Another broker, which knows the address of one and nothing else."""
        self._newcomers.start()
        self.scene.brokers.append(BrokerLine(self.newcomer))
        self.line(self.newcomer).state = "joins"
        self._observers[self.newcomer] = Observer(self._newcomer_url, timeout_s=2.0)
        self.joined = JoinedBroker(self.newcomer, time.time())
        self._say(f"broker {self.newcomer} is started, and told where the others are", "green")

    def _look_at_newcomer(self, now: float) -> None:
        """When it is up, and when it owns what it is responsible for."""
        joined = self.joined
        if joined is None or joined.serves_s is not None:
            return
        regions = len({r.cell for r in self.roster.by_owner.get(self.newcomer, ())})
        if regions:
            self.joined = replace(joined, serves_s=now, regions=regions)
            self._say(
                f"broker {self.newcomer} owns {regions} regions, {now - joined.at_s:.1f} s after its start",
                "green",
            )

    # -- the kill

    async def _kill(self) -> None:
        """SIGKILL for the broker through which most goes, right after it was asked what it has done."""
        victim = self._victim()
        status = await self._observers[victim].status()
        if status is not None:
            self._note(victim, status)
        at_s = time.time()
        self._brokers.kill(_name(victim), for_good=self.stage.open)
        self.line(victim).state = "killed"
        hit = self._hit_by(victim)
        self.outage = Outage(victim, at_s, hit)
        for place in hit:
            self.scene.guests[place].hit = True
        ever = " for good" if self.stage.open else ""
        self._say(
            f"broker {victim} is killed{ever}; the streams of {len(hit)} clients come through it", "bold red"
        )

    def _victim(self) -> PeerId:
        """An owner that also passes on what it takes from others, if there is one; else the busiest."""
        regions = self.roster.regions

        def weight(number: PeerId) -> tuple[bool, int]:
            status = self.statuses.get(number)
            streams = () if status is None else status.streams
            relays = any(s.brokers for s in streams if s.path is not None and len(s.path) > 1)
            owns = any(r.owner == number for r in regions)
            return (relays and owns, self.sent(number))

        return max(self.network.addresses, key=weight)

    def _hit_by(self, victim: PeerId) -> tuple[int, ...]:
        """Clients that had dialled a broker, or whose streams come through it."""
        hit = []
        for listener in self.listeners:
            status = self.statuses.get(listener.guest.broker)
            wanted, grid = listener.tally.mask, self.network.grid
            through = listener.guest.broker == victim or (
                status is not None
                and any(
                    s.path is not None
                    and victim in s.path
                    and grid.attributes[s.attribute] in listener.guest.query.attributes
                    and bool((checks.points_of_cell(grid, s.cell) & wanted).any())
                    for s in status.streams
                )
            )
            if through:
                hit.append(listener.place)
        return tuple(hit)

    # -- the verdict

    async def look_again(self) -> Fields:
        """The same records as one batch, in a process of its own; what it made."""
        self._stage("gridding the same raw records again, as one batch")
        target = self.folder / "again"
        arguments = [
            "sensorgrid.demo.again",
            str(self.config),
            str(target),
            str(self.begin),
            str(self.last),
        ]
        await run_once(arguments, self.folder / "logs" / "batch.log")
        return await asyncio.to_thread(
            checks.fields_of, Lake(str(target)), self.network.grid, self.begin, self.last
        )

    def measured_s(self) -> dict[int, float]:
        """When the last measurement of each tick was made, for ticks whose delays count."""
        tick_s = self.stage.tick_s
        table = self.earth.reports(self.start_s, (self.last + 2) * tick_s)
        times_s = pc.cast(table["event_time"], "int64").to_numpy() / 1e6
        ticks = np.floor(times_s / tick_s).astype(np.int64)
        return {
            tick: float(times_s[ticks == tick].max())
            for tick in range(self.first, self.last + 1)
            if (ticks == tick).any()
        }

    def judge(self, truth: Fields) -> Result:
        """All checks."""
        tallies = [listener.tally for listener in self.listeners]
        return checks.judge(
            tallies,
            truth,
            self.measured_s(),
            self.between(),
            self.outage,
            self.begin,
            self.last,
            len(self.guests),
            self.joined,
            self._operator(truth),
        )

    def _operator(self, truth: Fields) -> OperatorFacts | None:
        """What became of the operator."""
        watcher = self.watcher
        if watcher is None:
            return None
        cost = watcher.forecast(self.roster)
        span = (self.begin, self.last)
        return OperatorFacts(
            NAME, self.last - self.begin + 1, watcher.missing(*span), watcher.doubled(),
            watcher.wrong(truth, *span), cost.bytes, cost.raw_bytes,
        )  # fmt: skip


def _name(broker: PeerId) -> str:
    return f"broker {broker}"
