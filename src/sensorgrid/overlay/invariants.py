"""What must be true of a broker after every event, whatever happened: checked by tests and simulations.

Each check says what it found, so that a broken rule names itself.
"""

from collections.abc import Iterator

from sensorgrid.index.codes import contains, prefixes
from sensorgrid.overlay.boards import Boards
from sensorgrid.overlay.faces import IntakeFace, OutletsFace


def broken(boards: Boards) -> list[str]:
    """All rules that do not hold."""
    outlets, intake = boards.outlets, boards.intake
    return [*_outlets(outlets), *_reservations(outlets), *_intake(intake), *_interest(outlets, intake)]


def _outlets(outlets: OutletsFace) -> Iterator[str]:
    entries = [e for by in outlets.entries.values() for e in by.values()]
    if outlets.used != sum(e.size for e in entries):
        yield f"used is {outlets.used}, entries sum up to {sum(e.size for e in entries)}"
    if outlets.used + outlets.reserved > outlets.budget:
        yield f"budget {outlets.budget} exceeded: {outlets.used} used, {outlets.reserved} reserved"
    leaving = sum(e.size for e in entries if e.going is not None)
    if outlets.leaving != leaving:
        yield f"{outlets.leaving} points count as redirected, {leaving} are"
    movable = sum(e.size for e in entries if e.movable)
    counted = sum(load.points for by in outlets.loads.whole().values() for load in by.values())
    if movable != counted:
        yield f"loads sum up to {counted}, clients' entries to {movable}"
    for entry in entries:
        if entry.supply is None or not contains(entry.supply.cell, entry.cell):
            yield f"{entry} is fed by nothing that contains it"
        elif (
            entry.granted
            and entry.supply.head is not None
            and entry.next < entry.supply.head
            and (entry.until is None or entry.next < entry.until)
        ):
            yield f"{entry} stands at {entry.next}, its supply at {entry.supply.head}"
    for attribute, supplies in outlets.supplies.items():
        for cell in supplies:
            above = [code for code in prefixes(cell >> 1) if code in supplies] if cell > 1 else []
            if above:
                yield f"supplies {attribute}:{cell:b} and {above[0]:b} overlap"
        below: dict[int, int] = {}
        for cell in supplies:
            for code in prefixes(cell):
                below[code] = below.get(code, 0) + 1
        if below != outlets.below.get(attribute, {}):
            yield f"the tree of supplies of attribute {attribute} is not what its supplies make"


def _reservations(outlets: OutletsFace) -> Iterator[str]:
    total = sum(r.left for r in outlets.reservations.values())
    if total != outlets.reserved:
        yield f"{outlets.reserved} reserved, reservations sum up to {total}"


def _intake(intake: IntakeFace) -> Iterator[str]:
    for peer, known in intake.feeds.items():
        for (generation, cell), piece in known.items():
            mine = [s for s in (piece.feed, piece.trial) if s is not None]
            if not any((s.peer, s.generation, s.cell) == (peer, generation, cell) for s in mine):
                yield f"{piece} is listed at {peer} under {generation}, {cell:b}, where it has nothing"
        if not known:
            yield f"peer {peer} is listed without a piece"


def _interest(outlets: OutletsFace, intake: IntakeFace) -> Iterator[str]:
    """Interest upstream is a function of interest downstream: the pure form of what is kept by counts."""
    supplies = [s for by in outlets.supplies.values() for s in by.values()]
    wanted = {id(piece) for s in supplies for piece in (s.piece, s.past) if piece is not None}
    held = {id(piece) for known in intake.feeds.values() for piece in known.values()}
    if held - wanted:
        yield f"{len(held - wanted)} pieces are taken that no supply needs"
    for by in outlets.supplies.values():
        for supply in by.values():
            if supply.piece is not None and not supply.entries and not supply.standing:
                yield f"supply {supply.attribute}:{supply.cell:b} is taken for nobody"
            if supply.piece is not None and supply.piece.feed is None and supply.path is not None:
                yield f"supply {supply.attribute}:{supply.cell:b} has a path and no provider"
