"""What flows between nodes while operators run, and what each node has to do for it.

A *step* is an operator at a node: it takes the streams of its inputs and gives one of its own. Load is counted in
messages: each costs one where it is sent and one where it is received. What a step hands to another one on the same
node costs nothing, and several steps of a node that want the same stream get it once. Readings that sensors send to a
node, and results that go to subscribers, cost the node one each.

Rates are integers, in whatever unit, so that sums are exact and do not depend on what came first.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

from sensorgrid.model.ids import PeerId

Name = Hashable
Flow = tuple[PeerId | None, PeerId | None, int]
"""from, to, messages; None is a sensor or a subscriber"""


@dataclass(frozen=True, slots=True)
class Step:
    """An operator at a node."""

    host: PeerId
    rate: int
    """messages that it gives"""
    inputs: tuple[Name, ...] = ()
    """other steps, each once"""
    delivered: int = 0
    """subscribers that get its messages"""


class Transfers:
    """All steps, and the load of each node."""

    def __init__(self, nodes: Iterable[PeerId]) -> None:
        self.load: dict[PeerId, int] = dict.fromkeys(nodes, 0)
        self.steps: dict[Name, Step] = {}
        self.at: dict[PeerId, dict[Name, None]] = {node: {} for node in self.load}
        """steps by node"""
        self._sensed: dict[PeerId, int] = dict.fromkeys(self.load, 0)
        self._users: dict[Name, dict[Name, None]] = {}
        self._towards: dict[Name, dict[PeerId, int]] = {}
        """by step: how many steps of which nodes use it"""

    def enter(self, node: PeerId) -> None:
        """A node comes."""
        self.load[node] = self._sensed[node] = 0
        self.at[node] = {}

    def sense(self, node: PeerId, messages: int) -> None:
        """Sensors send so many messages more to a node, or fewer."""
        self._sensed[node] += messages
        self.load[node] += messages

    def put(self, name: Name, step: Step) -> None:
        """A step begins; its inputs are there."""
        self.steps[name] = step
        self.at[step.host][name] = None
        self._users[name], self._towards[name] = {}, {}
        self.load[step.host] += step.delivered * step.rate
        for source in step.inputs:
            self._users[source][name] = None
            self._link(source, step.host)

    def drop(self, name: Name) -> None:
        """A step that nobody uses ends."""
        assert not self._users[name], f"step {name!r} is used"
        step = self.steps.pop(name)
        self.load[step.host] -= step.delivered * step.rate
        for source in step.inputs:
            del self._users[source][name]
            self._unlink(source, step.host)
        del self.at[step.host][name], self._users[name], self._towards[name]

    def release(self, name: Name) -> None:
        """A step that may not be wanted any more ends if it is not, and with it those that only it wanted."""
        step = self.steps.get(name)
        if step is None or step.delivered or self._users[name]:
            return  # None: it was an input of another input, too, and went with it
        self.drop(name)
        for source in step.inputs:
            self.release(source)

    def deliver(self, name: Name, more: int) -> None:
        """So many subscribers more get its messages, or fewer."""
        step = self.steps[name]
        self.load[step.host] += more * step.rate
        self.steps[name] = replace(step, delivered=step.delivered + more)

    def rerate(self, name: Name, rate: int) -> None:
        """A step gives more or fewer messages."""
        step, more = self.steps[name], rate - self.steps[name].rate
        self.load[step.host] += more * step.delivered
        for host in self._towards[name]:
            self._count(step.host, host, more)
        self.steps[name] = replace(step, rate=rate)

    def rewire(self, name: Name, inputs: tuple[Name, ...]) -> None:
        """A step takes other inputs."""
        step = self.steps[name]
        before, after = set(step.inputs), set(inputs)  # for membership alone: order comes from the tuples
        for source in inputs:
            if source not in before:
                self._users[source][name] = None
                self._link(source, step.host)
        for source in step.inputs:
            if source not in after:
                del self._users[source][name]
                self._unlink(source, step.host)
        self.steps[name] = replace(step, inputs=inputs)

    def move(self, name: Name, host: PeerId) -> None:
        """A step goes on at another node."""
        step = self.steps[name]
        if host == step.host:
            return
        for source in step.inputs:
            self._unlink(source, step.host)
        for user in self._towards[name]:
            self._count(step.host, user, -step.rate)
            self._count(host, user, step.rate)
        self.load[step.host] -= step.delivered * step.rate
        self.load[host] += step.delivered * step.rate
        del self.at[step.host][name]
        self.at[host][name] = None
        self.steps[name] = replace(step, host=host)
        for source in step.inputs:
            self._link(source, host)

    def load_if(self, name: Name, host: PeerId) -> int:
        """The load of a node, if the step were there."""
        step, found = self.steps[name], self.load[host]
        if host == step.host:
            return found
        found += step.delivered * step.rate
        for user in self._towards[name]:
            found += -step.rate if user == host else step.rate
        for source in step.inputs:
            given, towards = self.steps[source], self._towards[source]
            if given.host == host:
                found -= given.rate if towards[step.host] == 1 else 0
            elif host not in towards:
                found += given.rate
        return found

    def load_left(self, name: Name) -> int:
        """The load of its node, if the step were somewhere else, where none of its inputs and users is."""
        step = self.steps[name]
        caused = step.delivered * step.rate
        caused += sum(step.rate for host in self._towards[name] if host != step.host)
        for source in step.inputs:
            given, alone = self.steps[source], self._towards[source][step.host] == 1
            if given.host == step.host:
                caused -= given.rate  # it would have to be sent
            elif alone:
                caused += given.rate
        if step.host in self._towards[name]:
            caused -= step.rate
        return self.load[step.host] - caused

    def users(self, name: Name) -> tuple[Name, ...]:
        """Steps that take its messages."""
        return tuple(self._users[name])

    def hosts_of(self, names: Iterable[Name]) -> tuple[PeerId, ...]:
        """Nodes of some steps, each once."""
        return tuple(dict.fromkeys(self.steps[name].host for name in names))

    def flows(self) -> Iterator[Flow]:
        """All messages, from the steps alone."""
        for node, messages in self._sensed.items():
            yield None, node, messages
        for name, step in self.steps.items():
            for _ in range(step.delivered):
                yield step.host, None, step.rate
            for host in dict.fromkeys(self.steps[user].host for user in self._users[name]):
                if host != step.host:
                    yield step.host, host, step.rate

    def _link(self, source: Name, host: PeerId) -> None:
        towards, step = self._towards[source], self.steps[source]
        towards[host] = towards.get(host, 0) + 1
        if towards[host] == 1:
            self._count(step.host, host, step.rate)

    def _unlink(self, source: Name, host: PeerId) -> None:
        towards, step = self._towards[source], self.steps[source]
        towards[host] -= 1
        if not towards[host]:
            del towards[host]
            self._count(step.host, host, -step.rate)

    def _count(self, sender: PeerId, receiver: PeerId, messages: int) -> None:
        if sender != receiver:
            self.load[sender] += messages
            self.load[receiver] += messages
