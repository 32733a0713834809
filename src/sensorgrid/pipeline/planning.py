"""Making the plan: halos from where the sensors are, parameters from what they say, the kernel from the time.

The first plan of a stream knows positions at best (from station tables) and uses priors; the backfill looks at
its data first. Later, what the lake has gathered is looked at again, and entries for coming ticks are added.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from time import perf_counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.book import Timing
from sensorgrid.pipeline.gridding.calibration import (
    STATIONS_FEW,
    TARGETS,
    TICKS_MIN,
    calibrate,
    overridden,
    prior,
    smooth,
)
from sensorgrid.pipeline.gridding.groups import Group, groups_of
from sensorgrid.pipeline.gridding.kernels import CHEAP, DEFAULT, KERNELS, kernel_by_name
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, Parameters
from sensorgrid.pipeline.gridding.measurements import Measurements
from sensorgrid.pipeline.gridding.neighbours import CANDIDATES
from sensorgrid.pipeline.gridding.regions import Regions, points_in_metres
from sensorgrid.pipeline.gridding.tile import Recipe, beside, last_vectors
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.plan import HaloEntry, Plan, RecipeEntry
from sensorgrid.pipeline.settings import GriddingSettings
from sensorgrid.pipeline.terrain import read_covariates

TICKS = TICKS_MIN
"""ticks that parameters are fitted to; more if stations are few"""
TICKS_MAX = 120
"""but no more than these"""
WEIGHT = 0.5
"""of a new fit against the one before: parameters change smoothly"""
AHEAD = 2
"""new entries hold from so many ticks later on, at least"""
ALWAYS = -(1 << 40)
"""a tick before all others"""


Positions = Mapping[str, tuple[Floats, Floats]]
"""for each group, where its sensors stand: x and y"""


@dataclass(frozen=True, slots=True)
class DataSurvey:
    """What a look at the data has found."""

    positions: Positions
    first_us: int
    """times of good measurements"""
    last_us: int


def look(flagged: DataFrame, grid: Grid) -> DataSurvey | None:
    """One pass over a batch: who speaks of what, from where, from when to when; None if nobody does."""
    found = (
        flagged.where("flag = 1")
        .groupBy("sensor", "attribute")
        .agg(
            F.min("longitude").alias("x"),
            F.min("latitude").alias("y"),
            F.unix_micros(F.min("event_time")).alias("first"),
            F.unix_micros(F.max("event_time")).alias("last"),
        )
        .toArrow()
    )
    if not len(found):
        return None
    positions = {}
    for group in groups_of(grid.attributes):
        mine = found.filter(pc.is_in(found["attribute"], pa.array(group.inputs)))
        positions[group.name] = (mine["x"].to_numpy(), mine["y"].to_numpy())
    return DataSurvey(positions, pc.min(found["first"]).as_py(), pc.max(found["last"]).as_py())


def for_all_groups(grid: Grid, x: Floats, y: Floats) -> Positions:
    """The same positions for every group, where nobody knows which sensor measures what."""
    return {group.name: (x, y) for group in groups_of(grid.attributes)}


def sample(flagged: DataFrame, grid: Grid, first: int, last: int) -> pa.Table:
    """Measurements of some ticks from `first` to `last`, evenly over those that have any; more ticks if few speak."""
    tick_us = round(grid.tick * 1e6)
    tick = F.floor(F.unix_micros("event_time") / tick_us)
    good = flagged.where("flag = 1").where(tick.between(first, last))
    counts = (
        good.groupBy(tick.alias("tick"), "attribute")
        .agg(F.countDistinct("sensor").alias("sensors"))
        .toArrow()
    )
    wanted: set[int] = set()
    for group in groups_of(grid.attributes):
        mine = counts.filter(pc.is_in(counts["attribute"], pa.array(group.inputs)))
        wanted |= set(_ticks_with_data(mine["tick"].to_numpy(), mine["sensors"].to_numpy()))
    return good.where(tick.isin(sorted(wanted))).select(
        "sensor", "attribute", "longitude", "latitude", F.unix_micros("event_time").alias("time_us"), "value",
        "elevation", tick.alias("tick"),
    ).toArrow()  # fmt: skip


def _ticks_with_data(ticks: npt.NDArray[np.int64], sensors: npt.NDArray[np.int64]) -> list[int]:
    """Of ticks with data, as many as a fit needs, evenly; those in which half the usual number speaks, or more."""
    if not len(ticks):
        return []
    usual = float(np.median(sensors))
    known = np.unique(ticks[sensors >= usual / 2])
    wanted = min(len(known), wanted_ticks(usual))
    steps = np.linspace(0, len(known) - 1, wanted + 2)[1:-1] if len(known) > wanted else np.arange(len(known))
    return [int(t) for t in known[np.unique(steps.round().astype(int))]]


def wanted_ticks(sensors: float) -> int:
    """How many ticks a fit should see, if so many sensors speak in each."""
    return min(TICKS_MAX, max(TICKS, ceil(TARGETS / max(sensors, 1.0))))


def observations_of(rows: pa.Table, group: Group, grid: Grid) -> list[list[Observations]]:
    """For each output of a group, its observations in each tick of a sample: the last value of each sensor."""
    table = rows.filter(pc.is_in(rows["attribute"], pa.array(group.inputs)))
    heights = np.full(len(table), np.nan, np.float32)
    if "elevation" in table.column_names:
        heights = pc.fill_null(table["elevation"], float("nan")).to_numpy().astype(np.float32)
    everything = Measurements(
        np.unique(table["sensor"].to_numpy(), return_inverse=True)[1].astype(np.uint64),
        table["time_us"].to_numpy(),
        table["longitude"].to_numpy(),
        table["latitude"].to_numpy(),
        table["value"].to_numpy(),
        pc.index_in(table["attribute"], pa.array(group.inputs)).to_numpy().astype(np.uint8),
        np.ones(len(table), np.uint8),
        heights,
    )
    ticks = table["tick"].to_numpy()
    per_output: list[list[Observations]] = [[] for _ in group.outputs]
    for tick in np.unique(ticks).tolist():
        mine = everything.take(ticks == tick).canonical()
        found = last_vectors(mine, np.arange(len(mine)), group)
        end_us = (tick + 1) * round(grid.tick * 1e6)
        for output, observations in zip(per_output, found.observations(mine, grid, end_us), strict=True):
            output.append(observations)
    return per_output


def first_plan(
    grid: Grid,
    settings: GriddingSettings,
    start_tick: int,
    positions: Positions,
    rows: pa.Table | None = None,
) -> Plan:
    """A plan for sensors at these positions; fitted to a sample of their measurements if there is one."""
    regions = Regions(grid)
    plan = Plan(grid, start_tick, halos=())
    kernel, why = choose_kernel(settings, grid, max((len(x) for x, _ in positions.values()), default=0))
    for group in groups_of(grid.attributes):
        plan = plan.with_halos(_halo(regions, settings, group, positions, from_tick=ALWAYS))
        stations = len(positions[group.name][0])
        recipe, source = _recipe(settings, group, grid, kernel, rows, stations)
        plan = plan.with_recipe(RecipeEntry(ALWAYS, group.name, recipe, f"{why}; {source}"))
    return plan


def refreshed(plan: Plan, lake: Lake, settings: GriddingSettings, newest_tick: int, ahead_s: float) -> Plan:
    """The plan with entries for ticks to come, from what the lake has gathered up to `newest_tick`.

    They hold from ticks on that nobody has begun with when this is done, `ahead_s` from now at least. If there
    are such entries already, it is too early for others.
    """
    grid = plan.grid
    from_tick = newest_tick + AHEAD + ceil(ahead_s / grid.tick)
    if max(*(h.from_tick for h in plan.halos), *(e.from_tick for e in plan.recipes)) > newest_tick:
        return plan
    sensors = lake.sensors()
    positions = {}
    for group in groups_of(grid.attributes):
        mine = sensors.filter(pc.equal(sensors["group"], group.name))
        positions[group.name] = (mine["longitude"].to_numpy(), mine["latitude"].to_numpy())
    kernel, why = choose_kernel(settings, grid, max(len(x) for x, _ in positions.values()))
    fewest = min((len(x) for x, _ in positions.values() if len(x)), default=0)
    rows = _gathered(lake, newest_tick, wanted_ticks(fewest))
    for group in groups_of(grid.attributes):
        halo = _halo(Regions(grid), settings, group, positions, from_tick)
        known = plan.halo(group.name, newest_tick).width_m
        if len(positions[group.name][0]) and _differs(np.asarray(halo.width_m), np.asarray(known)):
            plan = plan.with_halos(halo)
        before = plan.recipe(group, newest_tick)
        stations = len(positions[group.name][0])
        recipe, source = _recipe(settings, group, grid, kernel, rows, stations)
        priors = tuple(_prior(settings, name) for name in group.outputs)
        if before.parameters != priors:
            pairs = zip(before.parameters, recipe.parameters, strict=True)
            recipe = Recipe(recipe.kernel, tuple(smooth(old, new, WEIGHT) for old, new in pairs))
        if recipe != before and (recipe.parameters != priors or not settings.calibrate):
            entry = RecipeEntry(from_tick, group.name, recipe, f"{why}; {source}")
            plan = plan.with_recipe(entry)
    return plan


def choose_kernel(settings: GriddingSettings, grid: Grid, sensors: int) -> tuple[str, str]:
    """The kernel that was asked for if a tick would be ready in time, the cheap one otherwise; and why."""
    wanted = settings.kernel
    if wanted == CHEAP:
        return wanted, f"{wanted} as configured"
    tiles = len(Regions(grid)) * len(grid.attributes)
    needed_s = tile_seconds(wanted, grid, sensors) * tiles / (os.cpu_count() or 1)
    allowed_s = settings.ready_within * grid.tick
    if needed_s <= allowed_s:
        return wanted, f"{wanted} as configured: a tick takes about {needed_s:.2g} s of {grid.tick:g} s"
    return CHEAP, (
        f"{CHEAP} instead of {wanted}: a tick would take about {needed_s:.3g} s, and may take {allowed_s:.3g} s"
    )


def tile_seconds(kernel: str, grid: Grid, sensors: int) -> float:
    """How long a region takes on this machine, with so many sensors in the whole grid; measured."""
    points = points_in_metres(grid, 0)
    count = max(4, min(sensors, 9 * sensors // len(Regions(grid)) + 1))
    rng = np.random.default_rng(0)
    positions = points[rng.integers(0, len(points), count)] + rng.normal(0, 1e3, (count, points.shape[1]))
    observations = Observations(positions, rng.normal(0, 1, count), np.zeros(count))
    parameters = Parameters(0, 1, 5e5, 0.1, 0.1)
    times = []
    for _ in range(3):
        begin = perf_counter()
        kernel_by_name(kernel)(observations, points, parameters)
        times.append(perf_counter() - begin)
    return min(times)


def positions_needed(settings: GriddingSettings) -> int:
    """How many sensors a point and those who check them depend on."""
    return max(KERNELS[settings.kernel].neighbours + 1, CANDIDATES + 1)


def _halo(
    regions: Regions, settings: GriddingSettings, group: Group, positions: Positions, from_tick: int
) -> HaloEntry:
    if settings.halo != "auto":
        return HaloEntry(from_tick, group.name, (float(settings.halo),) * len(regions), "as configured")
    x, y = positions[group.name]
    width = regions.halos_for(x, y, positions_needed(settings))
    places = len(np.unique(np.stack([x, y]), axis=1).T)
    why = f"for {places:,} places of sensors" if places else "no sensor known yet: as wide as a region"
    return HaloEntry(from_tick, group.name, tuple(round(float(w), 1) for w in width), why)


def _differs(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> bool:
    """Whether new halos are worth an entry: some region's is a quarter wider, or half as wide."""
    return bool(((a > 1.25 * b) | (a < 0.5 * b)).any())


def _recipe(
    settings: GriddingSettings, group: Group, grid: Grid, kernel: str, rows: pa.Table | None, stations: int
) -> tuple[Recipe, str]:
    """Kernel and parameters of a group, and what they were chosen from; `stations` are those that are known of."""
    if not settings.calibrate or rows is None:
        reason = "nothing has been measured yet" if settings.calibrate else "calibrate = false"
        why = f"parameters are priors: {reason}"
        if kernel == DEFAULT and 0 < stations < STATIONS_FEW:
            kernel, why = CHEAP, f"{why}; {CHEAP}: fewer than {STATIONS_FEW} stations"
        return Recipe(kernel, tuple(_prior(settings, name) for name in group.outputs)), why
    found, reasons = [], []
    names = tuple(settings.covariates)
    covariates = read_covariates(tuple(settings.covariates.items()), grid)
    for name, ticks in zip(group.outputs, observations_of(rows, group, grid), strict=True):
        if settings.elevation is None:  # heights of sensors say nothing where those of the grid are not known
            ticks = [replace(tick, covariate=None) for tick in ticks]
        if covariates is not None:
            ticks = [
                replace(t, covariate=beside(t.covariate, covariates.at_places(t.positions, names)))
                for t in ticks
            ]
        own = settings.attributes.get(name)
        start = replace(prior(name), covariates=names)
        made = calibrate(ticks, start, kernel, None if own is None else own.transform, grid.tick)
        found.append(_given(settings, name, made.parameters))
        reasons.append((f"{name}: " if len(group.outputs) > 1 else "") + made.why)
        kernel = made.kernel
    return Recipe(kernel, tuple(found)), "; ".join(reasons)


def _prior(settings: GriddingSettings, name: str) -> Parameters:
    """What is known of an attribute beforehand, with what the configuration says of it."""
    own = settings.attributes.get(name)
    if own is None:
        return prior(name)
    return _given(settings, name, prior(name, own.transform, own.mean or own.spread))


def _given(settings: GriddingSettings, name: str, found: Parameters) -> Parameters:
    """Parameters with what the configuration says of the attribute."""
    own = settings.attributes.get(name)
    return found if own is None else overridden(found, own.mean, own.spread, own.length, own.noise)


def _gathered(lake: Lake, newest_tick: int, ticks: int) -> pa.Table:
    """Measurements of the last ticks that were used, from the observations that the lake keeps beside its grids."""
    tiles = lake.tiles(ticks=(newest_tick - ticks + 1, newest_tick), columns=["tick", "observations"])
    parents = pc.list_parent_indices(tiles["observations"].combine_chunks())
    flat = pa.Table.from_struct_array(pc.list_flatten(tiles["observations"].combine_chunks()))
    flat = flat.append_column("tick", tiles["tick"].combine_chunks().take(parents))
    flat = flat.append_column("time_us", flat["time"].cast(pa.int64()))
    sensors = lake.sensors()
    place = pc.index_in(flat["sensor"], sensors["number"].combine_chunks())
    flat = flat.append_column("elevation", sensors["elevation"].combine_chunks().take(place.combine_chunks()))
    return flat.filter(pc.or_kleene(pc.equal(flat["flag"], 1), pc.equal(flat["test"], "suspect")))


def first_tick(grid: Grid, timing: Timing, now_us: int) -> int:
    """The tick that a stream which starts now publishes first: the one that is running."""
    return timing.due(grid, now_us + round(timing.settle_s * 1e6)) + 1
