"""Sends ticks to receivers: each entry in tick order, revisions later, gaps by name (rules 6 and 7).

Nothing is refused here: `admission.py` and `mechanisms/streams.py` have decided who is fed. All that counts is a
supply's ring and its entries. A broker spends most of its time in this module.
"""

from sensorgrid.model.block import Slab
from sensorgrid.overlay.events import Spread, TickComplete, TickRevised, TicksMissing
from sensorgrid.overlay.forwarding import PLAN_MIN
from sensorgrid.overlay.kernel import BrokerKernel
from sensorgrid.overlay.messages import Feed
from sensorgrid.overlay.outlets import NOTHING, Entry, Supply, Tick

GAP: Tick = (-1, None)
"""what a ring holds for a tick that the owner lacks: data of any revision replace it"""


def forward(
    kernel: BrokerKernel, supply: Supply, tick: int, revision: int, slabs: tuple[Slab, ...] | None
) -> None:
    """Look a block up once, cut each row once, send the same slabs to all entries of a row."""
    before = supply.ring.get(tick)
    replaces = revision > 0 or (before is not None and before[0] < 0)
    comes_next = supply.head is None or tick >= supply.head
    supply.keep(tick, revision, slabs, kernel.settings.ring_ticks)
    if kernel.tapped:
        _tap(kernel, supply, tick, None if comes_next else revision, slabs)
    if not replaces and slabs is not None and _spread(kernel, supply, tick, slabs):
        return
    for row in supply.table.rows.values():
        part: tuple[tuple[Slab, ...] | None, int] | None = None
        for entry in row.entries:
            if not entry.granted or (entry.until is not None and tick >= entry.until):
                continue
            if entry.next == tick:
                entry.next += 1
            elif entry.next < tick or not replaces:
                continue
            if part is None:
                part = row.part(kernel.grid, slabs, tick)
            kernel.counters.masked_points += part[1]
            _send(kernel, entry, tick, revision, part[0])


def _tap(
    kernel: BrokerKernel, supply: Supply, tick: int, revision: int | None, slabs: tuple[Slab, ...] | None
) -> None:
    """Report what became of a tick to mechanisms that listen; `revision` is None if it is the supply's next tick."""
    at = (supply.attribute, supply.cell)
    if slabs is None:
        kernel.happened.put(TicksMissing(*at, tick, tick + 1))
    elif revision is None:
        kernel.happened.put(TickComplete(*at, tick, slabs))
    else:
        kernel.happened.put(TickRevised(*at, tick, revision, slabs))


def _spread(kernel: BrokerKernel, supply: Supply, tick: int, slabs: tuple[Slab, ...]) -> bool:
    """Send a block to all entries that go in step, as one effect; returns whether those were all entries."""
    table = supply.table
    if len(supply.entries) < PLAN_MIN or len(slabs) != 1:
        return False
    table.blocks_like(kernel.grid, slabs[0])
    served = 0
    for row in table.rows.values():
        straight = bool(row.straight)
        for entry in row.entries:
            if (
                straight
                and entry.next == tick
                and entry.granted
                and (entry.until is None or tick < entry.until)
            ):
                entry.next = tick + 1
                served += 1
                if not entry.in_step:
                    entry.in_step = table.stale = True
            elif entry.in_step:
                entry.in_step = False
                table.stale = True
    if not served:
        return False
    plan = table.plan(supply.epoch)
    counters = kernel.counters
    counters.messages["Feed"] = counters.messages.get("Feed", 0) + plan.receivers
    kernel.effects.append(Spread(plan, tick, slabs[0]))
    return served == len(supply.entries)


def skip(kernel: BrokerKernel, supply: Supply, until: int) -> None:
    """Name a gap to all receivers, in one message each."""
    first = until if supply.head is None else supply.head
    ring_ticks = kernel.settings.ring_ticks
    for tick in range(max(first, until - ring_ticks), until):
        supply.keep(tick, *GAP, ring_ticks)
    if kernel.tapped and first < until:
        kernel.happened.put(TicksMissing(supply.attribute, supply.cell, first, until))
    for entry in [e for e in supply.entries.values() if e.granted]:
        _gap(kernel, entry, until)


def catch_up(kernel: BrokerKernel, entry: Entry, supply: Supply) -> None:
    """Send a new entry the ticks that it missed; before them, send revisions of the ticks just before its first.

    The receiver has said which revisions it holds of those (rule 7): 0, unless it named another one or a gap.
    """
    if supply.head is None:
        return
    first = entry.next
    end = supply.head if entry.until is None else min(supply.head, entry.until)
    if supply.owned and supply.start is not None:
        _gap(kernel, entry, supply.start)
        first = entry.next
    for tick in range(first - kernel.settings.lateness_ticks, end):
        held = supply.ring.get(tick)
        if held is not None and (tick == entry.next or (tick < first and held[0] > entry.held.get(tick, 0))):
            _send(kernel, entry, tick, max(held[0], 0), _part(kernel, entry, supply, held[1], tick))
            if tick == entry.next:
                entry.next += 1
    entry.held = NOTHING


def _gap(kernel: BrokerKernel, entry: Entry, until: int) -> None:
    """Name what an owner lacks of the ticks before `until`."""
    until = until if entry.until is None else min(until, entry.until)
    if entry.next < until:
        _send(kernel, entry, entry.next, 0, None, until)
        entry.next = until


def _part(
    kernel: BrokerKernel, entry: Entry, supply: Supply, slabs: tuple[Slab, ...] | None, tick: int
) -> tuple[Slab, ...] | None:
    part, hidden = supply.table.rows[entry.cell, entry.clip].part(kernel.grid, slabs, tick)
    kernel.counters.masked_points += hidden
    return part


def _send(
    kernel: BrokerKernel,
    entry: Entry,
    tick: int,
    revision: int,
    slabs: tuple[Slab, ...] | None,
    until: int = 0,
) -> None:
    epoch = 0 if entry.supply is None else entry.supply.epoch
    kernel.send(entry.peer, Feed(entry.generation, entry.cell, tick, revision, slabs, until, epoch))
