"""Claims of the operators paper (Fukui et al.), section III-B and Figures 5 to 7, one test each."""

from fractions import Fraction

from sensorgrid.model.ids import PeerId
from sensorgrid.overlay.placing.demand import Costs, DemandTerm, OperatorDemand, SensorPlaces
from sensorgrid.overlay.placing.dsm import DomainSpacePlacement
from sensorgrid.overlay.placing.line import IdLine
from sensorgrid.overlay.placing.paper import (
    CalculationName,
    DependentName,
    FilterName,
    PaperPlacement,
    RootName,
)

DIGITS = 6
HALF, TENTH = Fraction(1, 2), Fraction(1, 10)
LINE = IdLine({PeerId(n): 4 * n for n in range(16)}, DIGITS)
SENSORS = SensorPlaces(tuple(range(64)))
"""four at each node, which has four IDs"""
A, B = (0, 16), (32, 48)
"""ranges of IDs, each of four nodes"""


def placed(limit: int = 10**9, publish: int = 1000) -> PaperPlacement:
    return PaperPlacement(LINE, SENSORS, Costs(limit, publish, HALF, TENTH))


def demand(*areas: tuple[int, int], place: int = 60, name: str = "s") -> OperatorDemand:
    return OperatorDemand(name, place, tuple(DemandTerm("rain", (area,)) for area in areas))


def test_3b_filters_are_allocated_to_the_edges_of_the_tree() -> None:
    """Filter operators are mainly allocated to the edge nodes to reduce redundant data forwarding."""
    policy = placed()
    policy.add(demand(A))

    filters = {name: step for name, step in policy.transfers.steps.items() if isinstance(name, FilterName)}
    assert [step.host for step in filters.values()] == [0, 1, 2, 3]
    assert {step.rate for step in filters.values()} == {2000}  # half of four sensors, a message a second each


def test_3b_the_joint_is_the_first_node_above_the_range_and_calculates() -> None:
    """A joint node is selected in the group of nodes with IDs larger than the requested range of IDs."""
    policy = placed()
    policy.add(demand(A))

    joint = policy.transfers.steps[CalculationName("s", 0, A)]
    assert joint.host == 4
    assert joint.rate == 800  # a tenth of what it gets


def test_3b_the_next_node_is_the_joint_if_the_first_is_not_capable() -> None:
    """The root repeats this step until the joint node is specified."""
    policy = placed(limit=50_000)
    policy.transfers.sense(PeerId(4), 50_000)
    policy.add(demand(A))

    assert policy.transfers.steps[CalculationName("s", 0, A)].host == 5


def test_3b_several_ranges_of_ids_have_as_many_joints() -> None:
    """If there are multiple ID-space groups, there will be many joint nodes."""
    policy = placed()
    policy.add(OperatorDemand("s", 60, (DemandTerm("rain", (A, B)),)))

    hosts = {name.part: policy.transfers.steps[name].host for name in _calculations(policy)}
    assert hosts == {A: 4, B: 12}


def test_3b_the_root_is_the_neighbour_of_the_subscriber_and_serves_it() -> None:
    """The subscriber sends subscriptions to the geographically neighbouring processing node: the root."""
    policy = placed()
    policy.add(demand(A, place=30))

    root = policy.transfers.steps[RootName("s")]
    assert (root.host, root.delivered) == (7, 1)


def test_3b_what_depends_on_several_areas_runs_at_the_root() -> None:
    """When the joint node cannot cover the required data, operators are allocated to the root node."""
    policy = placed()
    policy.add(demand(A, B))

    assert policy.transfers.steps[DependentName("s")].host == 15


def test_3b_figure_7_dependents_stay_with_all_inputs_and_leave_for_the_root_when_one_moves() -> None:
    """C3 needs the results of C2a and C2b: it must not go with one of them."""
    policy = placed(limit=30_000)
    policy.add(OperatorDemand("s", 60, (DemandTerm("rain", (A,)), DemandTerm("level", (A,)))))
    assert policy.transfers.steps[DependentName("s")].host == 4
    policy.transfers.sense(PeerId(4), 10_000)

    (order,) = policy.balance()

    assert (order.kind, order.source) == ("move", 4)
    assert policy.transfers.steps[DependentName("s")].host == 15


def test_3b_figure_6_an_overloaded_joint_asks_larger_ids_then_smaller_then_one_bit_shorter() -> None:
    """001110 and its order: neighbours of its prefix upwards, then downwards, then with one bit less."""
    line = IdLine(
        {PeerId(n): n for n in (0b001110, 0b001111, 0b001100, 0b001010, 0b010000, 0b110000)}, DIGITS
    )

    assert list(line.search(PeerId(0b001110))) == [0b001111, 0b001100, 0b001010, 0b010000, 0b110000]


def test_3b_an_overloaded_joint_hands_over_to_the_first_that_can_take_it() -> None:
    """If acceptable, the candidate becomes a new joint of the tree."""
    policy = placed(limit=20_000)
    policy.add(demand(A))
    for busy in (5, 6):
        policy.transfers.sense(PeerId(busy), 10_000)
    policy.transfers.sense(PeerId(4), 10_000)

    (order,) = policy.balance()

    assert (order.source, order.target) == (4, 7)


def test_3b_of_several_operators_the_smallest_that_is_enough_moves() -> None:
    """The paper does not say which."""
    policy = placed(limit=16_500)
    policy.add(demand(A, name="large"))
    policy.add(demand((8, 16), name="small"))
    assert policy.transfers.load[PeerId(4)] > 16_500

    (order,) = policy.balance()

    assert order.name == CalculationName("small", 0, (8, 16))


def test_3b_an_operator_that_fits_nowhere_is_split_by_cell() -> None:
    """A new joint node is simply added, and covers a different area."""
    policy = placed(limit=9_000)
    policy.add(demand(A))

    orders = policy.balance()

    parts = sorted(name.part for name in _calculations(policy))
    assert parts == [(0, 8), (8, 16)]
    assert len(orders) == 1
    assert max(policy.transfers.load.values()) <= 9_000


def test_3b_an_overloaded_root_has_the_busiest_joint_send_half() -> None:
    """This new aggregation operator makes the joint buffer sending data, which reduces the output rate by half."""
    policy = placed(limit=20_000)
    policy.add(demand(A, place=30))
    joint, root = CalculationName("s", 0, A), PeerId(7)
    before = policy.transfers.steps[joint].rate
    policy.transfers.sense(
        root, 20_000 - policy.transfers.load[root] + before
    )  # too much by what the joint sends

    (order,) = policy.balance()

    assert (order.kind, order.name) == ("halve", joint)
    assert policy.transfers.load[root] == 20_000
    assert (policy.transfers.steps[joint].rate, policy.results_kept) == (before // 2, 0.5)


def test_3b_a_root_that_is_overloaded_by_something_else_keeps_its_results() -> None:
    """The paper sets no bound: halving for ever would leave nothing."""
    policy = placed(limit=20_000)
    policy.add(demand(A, place=30))
    policy.transfers.sense(PeerId(7), 40_000)

    assert policy.balance() == []
    assert policy.results_kept == 1.0


def test_3b_there_is_no_rule_for_an_edge() -> None:
    """An edge that is overloaded by what it filters stays so."""
    policy = placed(limit=12_000)
    policy.transfers.sense(PeerId(1), 20_000)

    policy.add(demand(A))
    policy.balance()

    assert policy.transfers.load[PeerId(1)] == 4000 + 2000 + 20_000


def test_4_dsm_uses_half_of_the_nodes_as_edges_each_with_twice_the_publishers() -> None:
    """Their system can use at most only half of the processing nodes as edge nodes."""
    policy = DomainSpacePlacement(LINE, SENSORS, Costs(10**9, 1000, HALF, TENTH))

    assert list(policy.transfers.load.values()) == [8000, 0] * 8


def test_4_dsm_sends_filtered_data_straight_to_the_root_and_calculates_at_the_edges_if_it_does() -> None:
    """DSM-Pub/Sub transmits data directly to the subscribers after filtering data in the edges."""
    for calculates, rate, given in ((False, 4000, 8000), (True, 400, 400)):
        policy = DomainSpacePlacement(LINE, SENSORS, Costs(10**9, 1000, HALF, TENTH), calculates=calculates)
        policy.add(demand(A, place=63))

        root = policy.transfers.steps["s"]
        assert [policy.transfers.steps[leaf].rate for leaf in root.inputs] == [rate, rate]
        assert (root.host, root.rate) == (15, given)


def _calculations(policy: PaperPlacement) -> list[CalculationName]:
    return [name for name in policy.transfers.steps if isinstance(name, CalculationName)]
