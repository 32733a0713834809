"""Policies alone, on hand-made views: 4 × 4 brokers on the paper's grid, whose regions are the cells of 4 digits.

Broker b owns the cell of b's four binary digits, x and y in turn: 0 is a corner, 3 lies inside, its neighbours are
0, 1, 2, 4, 6, 8, 9 and 12. Sizes are counted in leaves, the cells of 8 digits.
"""

from typing import Any

import pytest

from sensorgrid.index.codes import contains
from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.geography import box_of, middle_of, view_of
from sensorgrid.overlay.loads import Load, Sums
from sensorgrid.overlay.policies.anticipate import Anticipate
from sensorgrid.overlay.policies.interface import Holding, Never, Proposal, View
from sensorgrid.overlay.policies.ours import Ours, dense_cells
from sensorgrid.overlay.policies.paper import Literal, Paper
from sensorgrid.overlay.roster import Region
from sensorgrid.simulator.workloads import paper_grid

GRID = paper_grid(4)
LEAF = GRID.points_per_period >> 8
BUDGET = 400 * LEAF
REGIONS = [Region(0, 16 + b, PeerId(b), 1) for b in range(16)]


def cell(digits: str) -> int:
    return int("1" + digits, 2)


def loads(**leaves: float) -> Sums:
    """Leaves of load by digits (after an underscore), each of ten receivers."""
    return {0: {cell(name[1:]): Load(int(points * LEAF), 10) for name, points in leaves.items()}}


def view(
    me: int = 3,
    whole: Sums | None = None,
    parts: Sums | None = None,
    relayed: dict[str, tuple[int, ...]] | None = None,
    owed: dict[str, float] | None = None,
    carriers: dict[str, tuple[int, ...]] | None = None,
    free: dict[int, float] | None = None,
    need: float = 1,
    room: float = 0,
    **more: Any,
) -> View:
    """What broker `me` sees; `relayed` cells come to it along paths."""
    known = view_of(PeerId(me), REGIONS, GRID)
    neighbours = tuple(sorted(r.owner for r in known if r.owner != me))
    holdings = {16 + me: Holding((PeerId(me),), 0, owned=True)}
    for digits, path in (relayed or {}).items():
        points = int((owed or {}).get(digits, 0) * LEAF)
        holdings[cell(digits)] = Holding((*map(PeerId, path), PeerId(me)), points, owned=False)
    room_of = {PeerId(p): int(f * LEAF) for p, f in (free or {}).items()}
    values: dict[str, Any] = {
        "me": PeerId(me),
        "now": 0.0,
        "grid": GRID,
        "depth": 8,
        "need": int(need * LEAF),
        "budget": BUDGET,
        "room": int(room * LEAF),
        "whole": whole or {},
        "parts": parts or {},
        "holdings": {0: holdings},
        "carriers": {0: {cell(d): tuple(map(PeerId, peers)) for d, peers in (carriers or {}).items()}},
        "neighbours": {0: neighbours},
        "boxes": {0: {r.owner: [box_of(GRID, r.cell)] for r in known}},
        "free": room_of,
    }
    return View(**(values | more))


# -- the paper's


def test_the_paper_takes_the_region_with_the_highest_load_per_size() -> None:
    """load(r) counts what clients have per byte of the region: 30 / 1 beats 100 / 8."""
    sees = view(whole=loads(_00110000=30, _0011100=20, _00111=80), free={0: 300})

    assert Paper().propose(sees) == Proposal(0, cell("00110000"), PeerId(0), whole=True)


def test_the_paper_adds_up_what_lies_in_a_region_and_leaves_out_what_is_larger() -> None:
    """q ≤ r: an entry of the whole region counts for no leaf, two leaves count for what holds both."""
    assert Paper().propose(view(whole=loads(_0011=15), free={0: 300})) is None

    first = next(Paper().regions(view(whole=loads(_0011=100, _00110000=3, _00110001=3))))

    assert first == (0, cell("0011"), 106 * LEAF)


def test_a_region_sent_out_once_is_no_candidate_of_the_paper() -> None:
    """Only load(r) > 1 is potential overload."""
    assert Paper().propose(view(whole=loads(_00110000=1), free={0: 300})) is None
    assert Paper().propose(view(whole=loads(_00110000=1.01), free={0: 300})) is not None


def test_the_papers_target_is_the_neighbour_with_most_free_bandwidth() -> None:
    sees = view(whole=loads(_00110000=30), free={0: 200, 1: 300, 2: 250, 15: 399})

    proposal = Paper().propose(sees)

    assert proposal is not None
    assert proposal.target == 1  # 15 is no neighbour of 3


def test_the_papers_target_lies_farther_from_the_original_region() -> None:
    """Broker 1, beside 3, replicates 3's cell only away from 3: to the corner 0, not to 3's other neighbours."""
    free = {0: 100, 2: 300, 3: 300, 4: 300, 6: 300}
    sees = view(1, loads(_00110000=30), relayed={"00110000": (3,)}, free=free)

    origin = cell("00110000")
    nearer = [
        p for p in (2, 3, 6) if sees.distance(0, PeerId(p), origin) <= sees.distance(0, sees.me, origin)
    ]
    proposal = Paper().propose(sees)

    assert nearer
    assert proposal is not None
    assert proposal.target not in nearer
    assert sees.distance(0, proposal.target, origin) > sees.distance(0, sees.me, origin)


def test_the_papers_target_is_not_on_the_path_of_the_region() -> None:
    """Brokers that provide the data are excluded; that they provide other data does not matter."""
    whole = loads(_00110000=30)
    path = {"00110000": (3, 0)}  # the corner feeds broker 1, however that came about

    assert Paper().propose(view(1, whole, relayed=path, free={0: 300})) is None

    other = {"00110000": (3,), "00111100": (3, 0)}
    proposal = Paper().propose(view(1, whole, relayed=other, free={0: 300}))

    assert proposal is not None
    assert proposal.target == 0


def test_the_paper_takes_the_next_region_where_nobody_can_serve_the_first() -> None:
    """The target has to serve all of a region's queries without running into an overload situation."""
    whole = loads(_00110000=100, _00111100=30)

    proposal = Paper().propose(view(whole=whole, free={0: 50}))

    assert proposal is not None
    assert proposal.cell == cell("00111100")
    assert proposal.whole


def test_only_where_nobody_can_serve_any_region_whole_the_paper_relocates_as_many_as_fit() -> None:
    whole = loads(_00110000=100, _00111100=90)

    proposal = Paper().propose(view(whole=whole, free={0: 50, 1: 40}))

    assert proposal == Proposal(0, cell("00110000"), PeerId(0), whole=False)
    assert Paper().propose(view(whole=whole, free={0: 1, 1: 1})) is None  # a copy would cost what it moves


def test_a_declined_pair_is_not_proposed_again() -> None:
    whole = loads(_00110000=30)
    declined = frozenset({(0, cell("00110000"), PeerId(0))})

    proposal = Paper().propose(view(whole=whole, free={0: 300, 1: 100}, declined=declined))

    assert proposal is not None
    assert proposal.target == 1


def test_the_smallest_region_of_the_paper_is_a_parameter() -> None:
    whole = loads(_00110000=30, _0011=40)

    assert next(Paper(shortest=5).regions(view(whole=whole)))[1] == cell("00110000")
    assert all(code.bit_length() > 5 for _, code, _ in Paper(shortest=5).regions(view(whole=whole)))


# -- Algorithm 3 to the letter


def test_algorithm_3_as_printed_takes_a_query_list_with_children_and_no_leaf() -> None:
    """Line 3 asks for children, so a leaf never qualifies, whatever its load."""
    assert Literal().propose(view(whole=loads(_00110000=300), free={0: 399})) is None

    whole = loads(_001100=0.5, _00110000=0.1, _00111100=300)
    proposal = Literal().propose(view(whole=whole, free={0: 399}))

    assert proposal is not None
    assert proposal.cell == cell("001100")


def test_algorithm_3_as_printed_looks_at_nothing_below_a_query_list() -> None:
    whole = loads(_0011=1, _001100=2, _00110000=100)

    assert [code for _, code, _ in Literal().regions(view(whole=whole))] == [cell("0011")]


# -- ours


def test_clients_move_to_a_broker_that_has_the_cell_before_any_copy_is_made() -> None:
    """Broker 15 has room and would take the densest cell; broker 0 has a thinner one already."""
    parts = loads(_00111100=200, _00110000=20)
    sees = view(parts=parts, carriers={"00110000": (0,)}, free={0: 50, 15: 390}, need=2)

    proposal = Ours(gossips=True).propose(sees)

    assert proposal is not None
    assert (proposal.cell, proposal.target) == (cell("00110000"), 0)
    assert proposal.cuts
    assert not proposal.passes


def test_as_much_moves_to_a_carrier_as_levels_the_two_but_no_less_than_is_needed() -> None:
    parts = loads(_00110000=100)
    sees = view(parts=parts, carriers={"00110000": (0,)}, free={0: 50}, need=2, room=10)
    tight = view(parts=parts, carriers={"00110000": (0,)}, free={0: 50}, need=40, room=10)

    level, needed = (Ours(gossips=True).propose(v) for v in (sees, tight))

    assert level is not None
    assert level.points == 20 * LEAF
    assert needed is not None
    assert needed.points == 40 * LEAF


def test_a_replica_that_overflows_is_passed_on_whole() -> None:
    """No more copies than before: a new one would leave this broker's own in place."""
    parts = loads(_00110000=60, _00010000=5)
    sees = view(1, parts=parts, relayed={"00110000": (3,)}, owed={"00110000": 61}, free={15: 300})

    proposal = Ours(gossips=True).propose(sees)

    assert proposal == Proposal(0, cell("00110000"), PeerId(15), passes=True)


def test_a_replica_is_passed_on_only_to_who_can_hold_all_of_it() -> None:
    parts = loads(_00110000=60)
    sees = view(1, parts=parts, relayed={"00110000": (3,)}, owed={"00110000": 61}, free={15: 40})

    proposal = Ours(gossips=True).propose(sees)

    assert proposal is not None
    assert not proposal.passes
    assert proposal.cuts


def test_of_several_replicas_that_one_goes_which_leaves_both_most_room() -> None:
    relayed = {"00110000": (3,), "00111100": (3,)}
    sees = view(
        1,
        parts=loads(_00110000=150, _00111100=50),
        relayed=relayed,
        owed={"00110000": 150, "00111100": 50},
        free={15: 180, 14: 120},
    )

    proposal = Ours(gossips=True).propose(sees)

    assert proposal is not None
    assert (proposal.cell, proposal.target) == (cell("00111100"), 15)


def test_an_owners_region_is_never_passed_on() -> None:
    sees = view(parts=loads(_00110000=60), free={15: 390})

    proposal = Ours(gossips=True).propose(sees)

    assert proposal is not None
    assert not proposal.passes


def test_a_new_copy_is_of_the_cell_that_moves_most_to_the_broker_with_most_room() -> None:
    parts = loads(_00110000=100, _00111100=90, _00110011=10)
    sees = view(parts=parts, free={0: 95, 5: 300, 15: 390})

    assert Ours(gossips=True).propose(sees) == Proposal(0, cell("00110000"), PeerId(15), cuts=True)


def test_a_copy_that_moves_no_more_than_it_costs_is_not_made() -> None:
    assert Ours(gossips=True).propose(view(parts=loads(_00110000=1), free={15: 390}, need=0.1)) is None
    lonely: Sums = {0: {cell("00110000"): Load(9 * LEAF, 1)}}
    assert Ours(gossips=True).propose(view(parts=lonely, free={15: 390})) is None


def test_without_gossip_only_neighbours_get_a_copy() -> None:
    sees = view(parts=loads(_00110000=100), free={0: 50, 15: 390})

    proposal = Ours(gossips=False).propose(sees)

    assert proposal is not None
    assert proposal.target == 0


def test_where_there_is_not_enough_room_nothing_is_shuffled() -> None:
    parts = loads(_00110000=100)
    carriers = {"00110000": (0,)}

    assert Ours(gossips=True).propose(view(parts=parts, carriers=carriers, free={0: 5}, need=6)) is None
    assert (
        Ours(gossips=True).propose(view(parts=parts, carriers=carriers, free={0: 5, 15: 2}, need=6))
        is not None
    )


def test_cells_as_dense_as_the_densest_go_as_one() -> None:
    even = view(parts=loads(_00110000=100, _00110001=60, _00110010=70, _00110011=55))
    uneven = view(parts=loads(_00110000=100, _00110001=60, _00110010=70, _00110011=45))

    assert dense_cells(even, 0)[cell("001100")].points == 285 * LEAF
    assert cell("0011000") in dense_cells(uneven, 0)
    assert cell("001100") not in dense_cells(uneven, 0)


def test_dense_cells_do_not_reach_beyond_the_supply() -> None:
    parts = loads(_00110000=100, _00110001=100)
    sees = view(1, parts=parts, relayed={"00110000": (3,), "00110001": (3,)})

    assert cell("0011000") not in dense_cells(sees, 0)


def test_ours_levels_ahead_of_need_only_when_it_is_nearly_full_and_without_a_copy() -> None:
    parts = loads(_00110000=100)
    carried = {"00110000": (0,)}
    ours = Ours(gossips=True)

    assert ours.foresee(view(parts=parts, carriers=carried, free={0: 100}, need=0, room=9)) is None
    assert ours.foresee(view(parts=parts, free={0: 100}, need=0, room=1)) is None
    proposal = ours.foresee(view(parts=parts, carriers=carried, free={0: 100}, need=0, room=1))

    assert proposal is not None
    assert proposal.target == 0
    assert proposal.points is not None
    assert proposal.points < 50 * LEAF


# -- ahead of a hot spot


def walk(policy: Anticipate, columns: list[int], room: float = 70, roomiest: float = 390) -> Proposal | None:
    """Show load that arrives around one column of a region's leaves after another; what it says in the end."""
    sums: dict[int, Load] = {}
    last: Proposal | None = None
    for step, column in enumerate(columns):
        for beside, points in ((-1, 4), (0, 10), (1, 4)):
            for leaf in leaves_of_column(column + beside):
                load = sums.setdefault(leaf, Load())
                load.points += points * LEAF
                load.receivers += 5
        last = policy.foresee(
            view(parts={0: dict(sums)}, free={15: roomiest}, need=0, room=room, now=float(step), grid=FLAT)
        )
    return last


FLAT = paper_grid(2)


def leaves_of_column(column: int) -> list[int]:
    """Leaves of broker 3's region (0011), 4 × 4 of them in two dimensions, by column."""
    leaves = [cell("0011") << 4 | code for code in range(16)]
    middles = dict(enumerate(sorted({middle_of(box_of(FLAT, leaf))[0] for leaf in leaves})))
    if column not in middles:
        return []
    return [leaf for leaf in leaves if middle_of(box_of(FLAT, leaf))[0] == middles[column]]


def test_a_cell_ahead_of_a_moving_hot_spot_is_given_away_before_there_is_need() -> None:
    policy = Anticipate()

    proposal = walk(policy, [0, 0, 0, 1, 1, 2, 2])

    assert proposal is not None
    assert proposal.ahead
    assert proposal.cuts
    assert proposal.target == 15
    assert proposal.cell in leaves_of_column(3)
    expected = policy.expected(FLAT, 0)
    assert expected is not None
    assert expected[0] > middle_of(box_of(FLAT, leaves_of_column(2)[0]))[0]


def test_a_hot_spot_that_stands_is_left_to_the_reactive_policy() -> None:
    assert walk(Anticipate(), [1, 1, 1, 1, 1, 1, 1]) is None


def test_nothing_is_given_away_ahead_while_the_broker_has_room() -> None:
    assert walk(Anticipate(), [0, 0, 0, 1, 1, 2, 2], room=100) is None


def test_nothing_is_given_away_ahead_where_bandwidth_is_scarce() -> None:
    assert walk(Anticipate(), [0, 0, 0, 1, 1, 2, 2], roomiest=180) is None


def test_a_few_looks_are_not_enough_to_see_a_movement() -> None:
    assert walk(Anticipate(), [0, 1, 2]) is None


@pytest.mark.parametrize("policy", [Never(), Paper(), Literal()])
def test_a_reactive_policy_foresees_nothing(policy: Never) -> None:
    sees = view(whole=loads(_00110000=300), parts=loads(_00110000=300), free={0: 399}, need=0)

    assert policy.foresees is None
    assert policy.foresee(sees) is None


def test_a_view_knows_who_has_a_cell_or_part_of_it() -> None:
    sees = view(carriers={"001100": (0,), "00111100": (1,)})

    assert sees.has(0, cell("00110000")) == (0,)
    assert sees.has(0, cell("0011")) == ()
    assert sees.overlaps(0, cell("0011"), PeerId(1))
    assert not sees.overlaps(0, cell("00111100"), PeerId(1))
    assert contains(cell("0011"), cell("00111100"))
