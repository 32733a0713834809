"""Making the plan: halos from where the sensors are, parameters from what they say, the kernel from the time.

The first plan of a stream knows positions at best (from station tables) and uses priors; the backfill looks at
its data first. Later, what the lake has gathered is looked at again, and entries for coming ticks are added.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sensorgrid.model.grid import Grid
from sensorgrid.pipeline.gridding.book import Timing
from sensorgrid.pipeline.gridding.calibration import fit, prior, smooth
from sensorgrid.pipeline.gridding.groups import DIRECTION, EASTWARD, NORTHWARD, SPEED, WIND, Group, groups_of
from sensorgrid.pipeline.gridding.kernels import CHEAP, KERNELS, kernel_by_name
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations, Parameters, metres
from sensorgrid.pipeline.gridding.neighbours import CANDIDATES
from sensorgrid.pipeline.gridding.regions import Regions, points_in_metres
from sensorgrid.pipeline.gridding.tile import Recipe
from sensorgrid.pipeline.lake import Lake
from sensorgrid.pipeline.plan import HaloEntry, Plan, RecipeEntry
from sensorgrid.pipeline.settings import GriddingSettings

TICKS = 6
"""ticks that parameters are fitted to"""
WEIGHT = 0.5
"""of a new fit against the one before: parameters change smoothly"""
ALWAYS = -(1 << 40)
"""a tick before all others"""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at the data has found."""

    x: Floats
    """positions of sensors"""
    y: Floats
    first_us: int
    """times of good measurements"""
    last_us: int


def look(flagged: DataFrame) -> Seen | None:
    """One pass over a batch: who speaks, from where, from when to when; None if nobody does."""
    found = (
        flagged.where("flag = 1")
        .groupBy("sensor")
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
    return Seen(
        found["x"].to_numpy(),
        found["y"].to_numpy(),
        pc.min(found["first"]).as_py(),
        pc.max(found["last"]).as_py(),
    )


def sample(flagged: DataFrame, grid: Grid, seen: Seen) -> pa.Table:
    """Measurements of a few ticks, evenly over the time of the data."""
    tick_us = round(grid.tick * 1e6)
    first, last = seen.first_us // tick_us, seen.last_us // tick_us
    ticks = np.unique(np.linspace(first, last, TICKS + 2).round().astype(int)[1:-1]).tolist()
    tick = F.floor(F.unix_micros("event_time") / tick_us)
    rows = flagged.where("flag = 1").where(tick.isin(ticks))
    return rows.select(
        "sensor", "attribute", "longitude", "latitude", F.unix_micros("event_time").alias("time_us"), "value",
        tick.alias("tick"),
    ).toArrow()  # fmt: skip


def observations_of(rows: pa.Table, group: Group, grid: Grid) -> list[list[Observations]]:
    """For each output of a group, its observations in each tick of a sample: the last value of each sensor."""
    rows = rows.filter(pc.is_in(rows["attribute"], pa.array(group.inputs)))
    per_output: list[list[Observations]] = [[] for _ in group.outputs]
    for tick in sorted(set(rows["tick"].to_pylist())):
        frame = rows.filter(pc.equal(rows["tick"], tick)).to_pandas()
        frame = frame.sort_values(["sensor", "time_us", "value"], kind="stable")
        if group.name == WIND:
            table = frame.pivot_table(
                index=["sensor", "time_us", "longitude", "latitude"], columns="attribute", values="value",
                aggfunc="last",
            ).reindex(columns=list(group.inputs)).reset_index()  # fmt: skip
            speed, direction = table[group.inputs[SPEED]], np.radians(table[group.inputs[DIRECTION]])
            u = table[group.inputs[EASTWARD]].fillna(-speed * np.sin(direction)).mask(speed == 0, 0.0)
            v = table[group.inputs[NORTHWARD]].fillna(-speed * np.cos(direction)).mask(speed == 0, 0.0)
            frame = table.assign(u=u, v=v).dropna(subset=["u", "v"])
        last = frame.drop_duplicates("sensor", keep="last")
        positions = metres(last["longitude"], last["latitude"], grid.coordinates)
        age_s = ((tick + 1) * grid.tick * 1e6 - last["time_us"].to_numpy()) / 1e6
        columns = ["u", "v"] if group.name == WIND else ["value"]
        for output, column in zip(per_output, columns, strict=True):
            output.append(Observations(positions, last[column].to_numpy(np.float64), age_s))
    return per_output


def first_plan(
    grid: Grid,
    settings: GriddingSettings,
    start_tick: int,
    x: Floats,
    y: Floats,
    rows: pa.Table | None = None,
) -> Plan:
    """A plan for sensors at these positions; fitted to a sample of their measurements if there is one."""
    regions = Regions(grid)
    halo = _halo(regions, settings, x, y, from_tick=ALWAYS)
    plan = Plan(grid, start_tick, (halo,))
    kernel, why = choose_kernel(settings, grid, len(x))
    for group in groups_of(grid.attributes):
        start = tuple(prior(name) for name in group.outputs)
        fitted, source = start, "priors"
        if settings.calibrate and rows is not None:
            fitted = _fit(rows, group, grid, start)
            source = "a fit to the data" if fitted != start else "priors: too few measurements"
        recipe = Recipe(kernel, fitted)
        plan = plan.with_recipe(RecipeEntry(ALWAYS, group.name, recipe, f"{why}; parameters are {source}"))
    return plan


def refreshed(plan: Plan, lake: Lake, settings: GriddingSettings, newest_tick: int) -> Plan:
    """The plan with entries for ticks to come, from what the lake has gathered up to `newest_tick`."""
    grid, from_tick = plan.grid, newest_tick + 3  # nobody has begun with these
    sensors = lake.sensors()
    x, y = sensors["longitude"].to_numpy(), sensors["latitude"].to_numpy()
    halo = _halo(Regions(grid), settings, x, y, from_tick)
    if len(x) and _differs(np.array(halo.width_m), np.array(plan.halo(newest_tick).width_m)):
        plan = plan.with_halos(halo)
    kernel, why = choose_kernel(settings, grid, len(x))
    rows = _gathered(lake, newest_tick)
    for group in groups_of(grid.attributes):
        before = plan.recipe(group, newest_tick)
        fitted = before.parameters
        if settings.calibrate:
            found = _fit(rows, group, grid, tuple(prior(name) for name in group.outputs))
            untouched = before.parameters == tuple(prior(name) for name in group.outputs)
            fitted = tuple(
                new if untouched else smooth(old, new, WEIGHT)
                for old, new in zip(before.parameters, found, strict=True)
            )
        recipe = Recipe(kernel, fitted)
        if recipe != before:
            entry = RecipeEntry(from_tick, group.name, recipe, f"{why}; parameters are a fit to the lake")
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
    return max(KERNELS[settings.kernel].neighbours, CANDIDATES)


def _halo(regions: Regions, settings: GriddingSettings, x: Floats, y: Floats, from_tick: int) -> HaloEntry:
    if settings.halo != "auto":
        return HaloEntry(from_tick, (float(settings.halo),) * len(regions), "as configured")
    width = regions.halos_for(x, y, positions_needed(settings))
    why = f"density of {len(x)} sensors" if len(x) else "no sensor known yet: as wide as a region"
    return HaloEntry(from_tick, tuple(round(float(w), 1) for w in width), why)


def _differs(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> bool:
    """Whether new halos are worth an entry: some region's is a quarter wider, or half as wide."""
    return bool(((a > 1.25 * b) | (a < 0.5 * b)).any())


def _fit(rows: pa.Table, group: Group, grid: Grid, start: tuple[Parameters, ...]) -> tuple[Parameters, ...]:
    ticks: Sequence[list[Observations]] = observations_of(rows, group, grid)
    return tuple(fit(found, begin) for found, begin in zip(ticks, start, strict=True))


def _gathered(lake: Lake, newest_tick: int) -> pa.Table:
    """Good measurements of the last ticks, from the observations that the lake keeps beside its grids."""
    tiles = lake.tiles(ticks=(newest_tick - TICKS + 1, newest_tick), columns=["tick", "observations"])
    parents = pc.list_parent_indices(tiles["observations"].combine_chunks())
    flat = pa.Table.from_struct_array(pc.list_flatten(tiles["observations"].combine_chunks()))
    flat = flat.append_column("tick", tiles["tick"].combine_chunks().take(parents))
    flat = flat.append_column("time_us", flat["time"].cast(pa.int64()))
    return flat.filter(pc.equal(flat["flag"], 1))


def first_tick(grid: Grid, timing: Timing, now_us: int) -> int:
    """The tick that a stream which starts now publishes first: the one that is running."""
    return timing.due(grid, now_us + round(timing.settle_s * 1e6)) + 1
