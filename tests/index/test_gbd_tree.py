from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oracles import boxes_on, limits_on, query_mask, slices_mask, small_grids
from sensorgrid import Box, Grid
from sensorgrid.benchmarks.workloads import boxes as random_boxes
from sensorgrid.index.cell import Cell, parse_cells
from sensorgrid.index.decompose import Fragments, decompose_box, restrict
from sensorgrid.index.enclosing import enclosing
from sensorgrid.index.gbd_tree import GbdTree, PagedTree, ReferenceTree
from sensorgrid.index.gbd_tree.pages import GROUP, LISTED, PAGE
from sensorgrid.index.layout import layout_of
from sensorgrid.model.errors import CellError, DuplicateEntryError, GridError, MissingEntryError
from sensorgrid.model.grid import ORDER_2D

GRID = Grid(shape=(64, 32), resolution_bits=2, region_digits=4)
EVERYTHING = (4, 4, 4)


@pytest.fixture(params=[ReferenceTree, PagedTree])
def tree(request: pytest.FixtureRequest) -> GbdTree:
    return request.param(GRID)  # type: ignore[no-any-return]


def whole(*patterns: str, grid: Grid = GRID) -> Fragments:
    """Whole cells, as a broker has them."""
    world = decompose_box(Box(0, grid.shape[0], 0, grid.shape[1]), EVERYTHING, grid, 0)
    return restrict(world, sorted(cell for pattern in patterns for cell in parse_cells(pattern)))


def rows(*boxes: Box) -> Any:
    return np.array([(b.x0, b.x1, b.y0, b.y1) for b in boxes], dtype=np.int32).reshape(-1, 4)


def check_pages(tree: PagedTree) -> None:
    """What must hold of pages and directory at any time."""
    stored = tree._pages
    columns, listed = tree.grid.shape[0], int(stored.state[LISTED])
    entries = []
    for position in range(listed):
        page = stored.listed[position]
        fill = stored.fill[page]
        assert 0 < fill <= PAGE
        boxes = stored.boxes[page, :, :fill].T
        entries += list(
            zip(stored.keys[page, :fill], stored.owners[page, :fill], map(tuple, boxes.tolist()), strict=True)
        )
        assert stored.sums[page] == stored.points[page, :fill].sum()
        assert (stored.first_keys[position], stored.first_owners[position]) == entries[-fill][:2]
        low = 0 if boxes[:, 1].max() > columns else boxes[:, 0].min()
        expected = [low, boxes[:, 1].max(), boxes[:, 2].min(), boxes[:, 3].max()]
        assert stored.bounds[position].tolist() == expected
    assert entries == sorted(set(entries))
    assert len(entries) == len(tree)
    for group in range(-(-listed // GROUP)):
        inside = stored.bounds[group * GROUP : min((group + 1) * GROUP, listed)]
        expected = [inside[:, 0].min(), inside[:, 1].max(), inside[:, 2].min(), inside[:, 3].max()]
        assert stored.group_bounds[group].tolist() == expected


class Histories(RuleBasedStateMachine):
    """Both trees go through the same history, and answer alike at every step."""

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.grid = data.draw(small_grids())
        self.fast, self.plain = PagedTree(self.grid), ReferenceTree(self.grid)
        self.fragments: list[tuple[Fragments, int]] = []
        self.boxes: list[tuple[Any, Any, Any]] = []

    @rule(data=st.data(), owner=st.integers(0, 5))
    def insert_fragments(self, data: st.DataObject, owner: int) -> None:
        box, limits = data.draw(boxes_on(self.grid)), data.draw(limits_on(self.grid))
        fragments = decompose_box(box, limits, self.grid, data.draw(st.integers(0, 8)))
        try:
            self.plain.insert(fragments, owner)
        except DuplicateEntryError:
            with pytest.raises(DuplicateEntryError):
                self.fast.insert(fragments, owner)
        else:
            self.fast.insert(fragments, owner)
            self.fragments.append((fragments, owner))

    @rule(data=st.data())
    def remove_fragments(self, data: st.DataObject) -> None:
        if self.fragments:
            gone = self.fragments.pop(data.draw(st.integers(0, len(self.fragments) - 1)))
            self.plain.remove(*gone)
            self.fast.remove(*gone)

    @rule(data=st.data(), count=st.sampled_from([1, 2, 5, 2 * PAGE]), seed=st.integers(0, 99))
    def insert_boxes(self, data: st.DataObject, count: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        (nx, ny), full = self.grid.shape, 1 << np.array(self.grid.resolution_bits)
        x0, y0 = rng.integers(0, nx, count), rng.integers(0, ny, count)
        boxes = np.stack([x0, x0 + rng.integers(1, nx + 1, count), y0, rng.integers(y0 + 1, ny + 1)], axis=1)
        # Owners in any order, small or huge; now and then one twice.
        owners = rng.permutation(1000)[:count] + 10 * seed + (seed % 3 == 0) * 2**61
        boxes[-1], owners[-1] = (boxes[0], owners[0]) if seed % 7 == 0 else (boxes[-1], owners[-1])
        batch = boxes.astype(np.int32), owners, rng.integers(1, full + 1, (count, 3))
        try:
            self.plain.insert_boxes(*batch)
        except DuplicateEntryError:
            with pytest.raises(DuplicateEntryError):
                self.fast.insert_boxes(*batch)
        else:
            self.fast.insert_boxes(*batch)
            self.boxes.append(batch)

    @rule(data=st.data())
    def remove_boxes(self, data: st.DataObject) -> None:
        if self.boxes:
            batch = self.boxes.pop(data.draw(st.integers(0, len(self.boxes) - 1)))
            part = data.draw(st.integers(0, len(batch[0])))
            for piece in ([column[:part] for column in batch[:2]], [column[part:] for column in batch[:2]]):
                self.plain.remove_boxes(*piece)
                self.fast.remove_boxes(*piece)

    @rule(data=st.data())
    def remove_what_is_not_there(self, data: st.DataObject) -> None:
        fragments = decompose_box(data.draw(boxes_on(self.grid)), (1, 1, 1), self.grid, 3)
        if len(fragments):
            for tree in (self.plain, self.fast):
                with pytest.raises(MissingEntryError):
                    tree.remove(fragments, 10**6)

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        box, limits = data.draw(boxes_on(self.grid)), data.draw(limits_on(self.grid))
        asked = decompose_box(box, limits, self.grid, data.draw(st.integers(0, 6)))
        digits = layout_of(self.grid).digits
        length = data.draw(st.integers(0, digits))
        cell = Cell(1 << length | data.draw(st.integers(0, (1 << length) - 1)))

        assert self.fast.overlaps(box, limits).tolist() == self.plain.overlaps(box, limits).tolist()
        assert self.fast.serve(asked) == self.plain.serve(asked)
        assert self.fast.covering(cell) == self.plain.covering(cell)
        assert self.fast.count(cell) == self.plain.count(cell)
        assert self.fast.size(cell) == self.plain.size(cell)
        assert self.fast.under(cell) == self.plain.under(cell)

    @invariant()
    def both_hold_the_same(self) -> None:
        if hasattr(self, "fast"):
            assert len(self.fast) == len(self.plain)
            assert list(self.fast) == list(self.plain)
            check_pages(self.fast)

    def teardown(self) -> None:
        """The state is a function of the stored set: a fresh build in another order is equal."""
        if hasattr(self, "fast"):
            fresh = PagedTree(self.grid)
            for batch in reversed(self.boxes):
                fresh.insert_boxes(*(column[::-1] for column in batch))
            for fragments, owner in reversed(self.fragments):
                fresh.insert(fragments, owner)
            assert list(fresh) == list(self.fast)
            assert all(fresh.size(c) == self.fast.size(c) for c in (Cell(1), Cell(2), Cell(3)))


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


@settings(max_examples=150)
@given(st.data())
def test_available_and_missing_are_the_query_point_by_point(data: st.DataObject) -> None:
    """Algorithm 1 against brute force: a point is available exactly if a stored cell holds it."""
    grid = data.draw(small_grids())
    digits = layout_of(grid).digits
    texts = data.draw(st.lists(st.text("01", max_size=min(digits, 6)), max_size=5, unique=True))
    world = decompose_box(
        Box(0, grid.shape[0], 0, grid.shape[1]), tuple(1 << b for b in grid.resolution_bits), grid, 0
    )  # type: ignore[arg-type]
    tree = PagedTree(grid)
    stored = np.zeros_like(query_mask(grid, world.box, world.limits))
    for owner, text in enumerate(texts):
        tree.insert(restrict(world, [Cell.parse(text)]), owner)
        stored |= slices_mask(grid, Cell.parse(text).slices(grid))
    box, limits = data.draw(boxes_on(grid)), data.draw(limits_on(grid))

    available, missing = tree.serve(decompose_box(box, limits, grid, data.draw(st.integers(0, 8))))

    wanted = query_mask(grid, box, limits)
    for found, expected in ((available, wanted & stored), (missing, wanted & ~stored)):
        times = np.zeros(wanted.shape, dtype=int)
        for fragment in found:
            for slices in fragment.slices(grid):
                times += slices_mask(grid, slices)
        assert np.array_equal(times, expected.astype(int))


def test_availability_is_checked_on_the_child_that_is_entered(tree: GbdTree) -> None:
    """Algorithm 1, line 14 as printed tests lowChild before upChild: both of these would come out wrong."""
    tree.insert(whole("01"), 1)

    assert tree.serve(whole("011"))[1] == []
    assert [str(f.cell) for f in tree.serve(whole("001"))[1]] == ["001"]
    available, missing = tree.serve(whole("0"))
    assert [str(f.cell) for f in available] == ["01"]
    assert [str(f.cell) for f in missing] == ["00"]


def test_of_nested_cells_the_topmost_is_served_once(tree: GbdTree) -> None:
    tree.insert(whole("0"), 1)
    tree.insert(whole("000", "0011", "01*1"), 2)
    tree.insert(whole("110"), 3)

    available, missing = tree.serve(whole(""))

    assert [str(f.cell) for f in available] == ["0", "110"]
    assert [str(f.cell) for f in missing] == ["10", "111"]


def test_counts_sizes_and_covers_follow_the_tree(tree: GbdTree) -> None:
    tree.insert(whole("01"), 1)
    tree.insert(whole("0110"), 2)
    tree.insert(whole("10"), 3)

    assert [tree.count(Cell.parse(c)) for c in ("", "0", "01", "011", "0110", "0111", "11")] == [
        3,
        2,
        2,
        1,
        1,
        0,
        0,
    ]
    assert tree.size(Cell.parse("0")) == Cell.parse("01").size(GRID) + Cell.parse("0110").size(GRID)
    assert tree.covering(Cell.parse("01101")) == Cell.parse("0110")
    assert tree.covering(Cell.parse("0111")) == Cell.parse("01")
    assert tree.covering(Cell.parse("00")) is None
    assert [(str(e.cell), e.owner) for e in tree.under(Cell.parse("0"))] == [("01", 1), ("0110", 2)]


def test_what_was_all_removed_leaves_nothing(tree: GbdTree) -> None:
    tree.insert(whole("01", "1*1"), 1)
    tree.insert_boxes(rows(Box(10, 70, 3, 9)), np.array([2]))

    tree.remove_boxes(rows(Box(10, 70, 3, 9)), np.array([2]))
    tree.remove(whole("01", "1*1"), 1)

    assert len(tree) == tree.count(Cell(1)) == tree.size(Cell(1)) == 0
    assert list(tree) == []
    assert tree.overlaps(Box(0, 64, 0, 32)).tolist() == []


def test_a_batch_with_one_bad_entry_changes_nothing(tree: GbdTree) -> None:
    boxes = rows(Box(0, 5, 0, 5), Box(1, 9, 1, 9), Box(3, 4, 3, 4))
    tree.insert_boxes(boxes, np.array([1, 2, 3]))
    before = list(tree)

    both = np.array([[1, 1, 1], [4, 4, 4]])
    with pytest.raises(DuplicateEntryError, match="found it twice"):
        tree.insert_boxes(rows(Box(8, 9, 8, 9), Box(8, 9, 8, 9)), np.array([4, 4]), both)
    with pytest.raises(DuplicateEntryError, match="owner 2, box \\[1, 9, 1, 9\\]: found it stored"):
        tree.insert_boxes(boxes, np.array([7, 2, 8]))
    with pytest.raises(DuplicateEntryError):
        tree.insert_boxes(rows(Box(8, 9, 8, 9), Box(8, 9, 8, 9)), np.array([4, 4]))
    with pytest.raises(MissingEntryError, match="owner 9"):
        tree.remove_boxes(boxes, np.array([1, 9, 3]))
    with pytest.raises(MissingEntryError):
        tree.remove_boxes(rows(Box(0, 5, 0, 5), Box(0, 5, 0, 5)), np.array([1, 1]))

    assert list(tree) == before


def test_an_empty_batch_is_nothing(tree: GbdTree) -> None:
    none = rows()

    tree.insert_boxes(none, np.empty(0, np.int64))
    tree.remove_boxes(none, np.empty(0, np.int64))

    assert len(tree) == 0
    assert list(tree.overlaps_many(none)) == []
    assert tree.serve(decompose_box(Box(1, 2, 1, 2), (1, 1, 1), GRID)) == ([], [])


@pytest.mark.parametrize(
    ("box", "owner"),
    [((5, 5, 0, 1), 1), ((0, 1, 0, 33), 1), ((-1, 1, 0, 1), 1), ((64, 65, 0, 1), 1), ((0, 1, 0, 1), -1)],
)
def test_boxes_off_the_grid_are_refused(box: tuple[int, ...], owner: int) -> None:
    with pytest.raises(GridError, match="box 0: found"):
        PagedTree(GRID).insert_boxes(np.array([box]), np.array([owner]))


@pytest.mark.parametrize(
    ("boxes", "owners", "limits", "complaint"),
    [
        ([[0, 10], [0, 10], [0, 5], [0, 5]], [1, 2], None, r"boxes: found an array of shape \(4, 2\)"),
        ([0, 10, 0, 5], [1], None, "boxes: found an array of shape"),
        ([[0.9, 10.9, 0, 5]], [1], None, "boxes: found numbers of type float64"),
        ([[0, 2**32 + 10, 0, 5]], [1], None, "boxes: found 0 to 4294967306"),
        ([[0, 10, 0, 5]], [1.9], None, "owners: found numbers of type float64"),
        ([[0, 10, 0, 5]], [1], [[5, 4, 4]], "limits from 1 to"),
        ([[0, 10, 0, 5]], [1], [[4, 0, 4]], "limits from 1 to"),
    ],
)
def test_nothing_is_rounded_reshaped_or_cut_off(boxes: Any, owners: Any, limits: Any, complaint: str) -> None:
    tree = PagedTree(GRID)

    with pytest.raises(GridError, match=complaint):
        tree.insert_boxes(boxes, owners, limits)

    assert len(tree) == 0


def test_lists_are_as_good_as_arrays() -> None:
    tree = PagedTree(GRID)

    tree.insert_boxes([[0, 10, 0, 5]], [1])  # type: ignore[arg-type]

    assert tree.overlaps(Box(3, 4, 3, 4)).tolist() == [1]
    assert repr(tree) == "<PagedTree of 1 entries on 64 × 32 points>"


@pytest.mark.parametrize("box", [Box(64, 65, 0, 1), Box(0, 65, 0, 1), Box(0, 1, 0, 33)])
def test_a_lookup_off_the_grid_is_refused(box: Box) -> None:
    with pytest.raises(GridError, match="expected a box on the grid"):
        PagedTree(GRID).overlaps(box)


@pytest.mark.parametrize("limits", [(0, 1, 1), (1, 5, 1), (1, 1)])
def test_a_lookup_with_limits_that_cannot_be_is_refused(tree: GbdTree, limits: Any) -> None:
    with pytest.raises(GridError, match="limits: found"):
        tree.overlaps(Box(0, 1, 0, 1), limits)


def test_fragments_of_another_grid_and_odd_owners_are_refused() -> None:
    other = Grid(shape=(32, 32), resolution_bits=2)

    with pytest.raises(GridError, match="those of another grid"):
        PagedTree(GRID).insert(decompose_box(Box(0, 4, 0, 4), EVERYTHING, other), 1)
    for owner in (-1, 1.5, "me"):
        with pytest.raises(GridError, match="owner: found"):
            PagedTree(GRID).insert(whole("0"), owner)  # type: ignore[arg-type]


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(GridError, match="expected as many of each"):
        PagedTree(GRID).insert_boxes(rows(Box(0, 1, 0, 1)), np.array([1, 2]))


def test_boxes_may_meet_between_the_points_of_a_coarse_stride_and_still_overlap(tree: GbdTree) -> None:
    tree.insert_boxes(rows(Box(0, 7, 0, 8)), np.array([1]), np.array([[1, 1, 1]]))

    assert tree.overlaps(Box(5, 20, 0, 8), (1, 1, 1)).tolist() == [1]


def test_cells_of_other_ranks_do_not_overlap_a_coarse_query() -> None:
    grid = Grid(shape=(16, 16), resolution_bits=2, region_digits=2)
    world = decompose_box(Box(0, 16, 0, 16), EVERYTHING, grid, 0)
    for tree in (ReferenceTree(grid), PagedTree(grid)):
        odd_columns = parse_cells("****1")
        assert {cell.slices(grid).x.start % 2 for cell in odd_columns} == {1}
        tree.insert(restrict(world, odd_columns), 1)

        assert tree.overlaps(Box(0, 16, 0, 16), (4, 4, 4)).tolist() == [1]
        assert tree.overlaps(Box(0, 16, 0, 16), (2, 4, 4)).tolist() == []


@pytest.mark.parametrize("distribution", ["uniform", "hotspot"])
def test_many_boxes_are_found_as_by_comparing_with_each(distribution: Any) -> None:
    grid, rng = Grid(order=ORDER_2D), np.random.default_rng(3)
    stored, asked = (random_boxes(distribution, n, grid, rng) for n in (20_000, 60))
    owners = rng.permutation(10**6)[: len(stored)]
    tree = PagedTree(grid)
    tree.insert_boxes(stored, owners)
    gone = rng.permutation(len(stored))[:9_000]

    tree.remove_boxes(stored[gone], owners[gone])  # in one pass
    for i in gone[:400]:  # back one by one: pages split
        tree.insert_boxes(stored[i : i + 1], owners[i : i + 1])
        if i % 20 == 0:
            check_pages(tree)
    for i in gone[:200]:  # and go again: pages join
        tree.remove_boxes(stored[i : i + 1], owners[i : i + 1])

    kept = np.setdiff1d(np.arange(len(stored)), np.concatenate([gone[:200], gone[400:]]))
    for (x0, x1, y0, y1), found in zip(asked, tree.overlaps_many(asked), strict=True):
        s = stored[kept]
        meets = (s[:, 0] < x1) & (s[:, 1] > x0) & (s[:, 2] < y1) & (s[:, 3] > y0)
        assert found.tolist() == sorted(owners[kept][meets].tolist())
        assert tree.overlaps(Box(x0, x1, y0, y1)).tolist() == found.tolist()
    assert len(tree) == len(kept)


def test_growing_one_by_one_ends_as_building_at_once() -> None:
    grid, rng = Grid(order=ORDER_2D), np.random.default_rng(4)
    stored, owners = random_boxes("hotspot", 6_000, grid, rng), np.arange(6_000)
    once, slowly = PagedTree(grid), PagedTree(grid)

    once.insert_boxes(stored, owners)
    for step, i in enumerate(rng.permutation(6_000)):
        slowly.insert_boxes(stored[i : i + 1], owners[i : i + 1])
        if step % 500 == 0:
            check_pages(slowly)

    assert list(slowly) == list(once)
    assert slowly._pages.state[LISTED] > GROUP
    assert slowly.nbytes < 200 * len(slowly)
    largest = slowly.nbytes
    for step, i in enumerate(rng.permutation(6_000)):
        slowly.remove_boxes(stored[i : i + 1], owners[i : i + 1])
        if step % 500 == 0:
            check_pages(slowly)
            assert slowly._pages.state[LISTED] <= 4 * len(slowly) / PAGE + 2
            assert slowly.nbytes < 200 * max(len(slowly), PAGE)
    assert list(slowly) == []
    assert slowly.nbytes < largest / 50


@settings(max_examples=200)
@given(st.data())
def test_a_box_is_stored_under_the_smallest_spatial_cell_around_it(data: st.DataObject) -> None:
    grid = data.draw(small_grids())
    box, limits = data.draw(boxes_on(grid)), data.draw(limits_on(grid))

    fragment = enclosing(box, limits, grid)

    around = fragment.cell.box(grid)
    assert all(around.x0 <= p.x0 < p.x1 <= around.x1 for p in grid.plain_boxes(box))
    assert around.y0 <= box.y0 < box.y1 <= around.y1
    assert fragment.points == query_mask(grid, box, limits).sum()
    if fragment.cell.length < layout_of(grid).spatial_digits:
        for half in (child.box(grid) for child in fragment.cell.children):
            inside_x = all(half.x0 <= p.x0 < p.x1 <= half.x1 for p in grid.plain_boxes(box))
            assert not (inside_x and half.y0 <= box.y0 < box.y1 <= half.y1)


def test_a_page_that_runs_empty_leaves_the_others_in_order() -> None:
    grid, rng = Grid(order=ORDER_2D), np.random.default_rng(7)
    stored, owners = random_boxes("uniform", 3 * GROUP * PAGE, grid, rng), np.arange(3 * GROUP * PAGE)
    tree = PagedTree(grid)
    tree.insert_boxes(stored, owners)
    before, page = tree._pages.state[LISTED], tree._pages.listed[5]

    for i in tree._pages.owners[
        page, : tree._pages.fill[page]
    ].copy():  # its neighbours are full: none can join
        tree.remove_boxes(stored[i : i + 1], owners[i : i + 1])

    assert tree._pages.state[LISTED] == before - 1
    check_pages(tree)


@pytest.mark.parametrize("largest", [10**5, 2**62])
def test_owners_in_any_order_and_of_any_size(largest: int) -> None:
    grid, rng = Grid(order=ORDER_2D), np.random.default_rng(5)
    stored = random_boxes("hotspot", 4_000, grid, rng)
    owners = rng.choice(largest, 4_000, replace=False) if largest < 2**30 else rng.integers(0, largest, 4_000)
    at_once, in_parts = PagedTree(grid), PagedTree(grid)

    at_once.insert_boxes(stored, owners)
    for start in range(0, 4_000, 1_000):
        in_parts.insert_boxes(stored[start : start + 1_000], owners[start : start + 1_000])

    check_pages(at_once)
    check_pages(in_parts)
    assert list(in_parts) == list(at_once)
    assert at_once.overlaps(Box(0, 4096, 0, 2048)).tolist() == sorted(owners.tolist())


def test_a_grid_too_large_for_the_short_sort() -> None:
    """Keys and places do not fit one word any more: another sort takes over."""
    grid = Grid(shape=(2**21, 2**20), resolution_bits=(1, 1, 0), order=ORDER_2D)
    rng = np.random.default_rng(6)
    stored = random_boxes("uniform", 2_000, grid, rng)
    tree = PagedTree(grid)

    tree.insert_boxes(stored, np.arange(2_000))

    check_pages(tree)
    assert tree.overlaps(Box(0, 2**21, 0, 2**20)).tolist() == list(range(2_000))


def test_a_cell_that_the_grid_does_not_have_is_refused(tree: GbdTree) -> None:
    with pytest.raises(CellError, match="expected at most"):
        tree.count(Cell.parse("0" * 30))
