"""A nested forecast: a fine local model inside a global one that is ten times coarser, fed by one connection.

    sensorgrid up examples/weather.toml
    python examples/forecast.py --state forecast.npz --ticks 5
    python examples/forecast.py --state forecast.npz --ticks 5      # goes on exactly where it was

The model is a toy: what was, plus the trend, drawn a part of the way towards each new field. What matters is around
it: the coarse state gives the fine one its border, and the state is kept together with the number of its tick, so
that every tick counts once, whatever is killed.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import xarray as xr

import sensorgrid

NAME = "air_temperature"
EUROPE = (-12, 36, 28, 60)
PULL = 0.5
"""how far a state is drawn towards a field"""
HURRY = 0.2
"""how fast the trend learns"""


UNSURE = 7.5
"""kelvin: half of the error that the grid states where it has no measurement at all"""


class Model:
    """A temperature and its trend per tick, on the points of a field."""

    def __init__(self, value: np.ndarray, trend: np.ndarray) -> None:
        self.value, self.trend = value, trend

    def forecast(self) -> np.ndarray:
        """The next tick."""
        return self.value + self.trend

    def nudge(self, forecast: np.ndarray, field: np.ndarray) -> float:
        """Draw the forecast towards what has been measured, where there is anything; how wrong it was (RMS)."""
        error = np.nan_to_num(field - forecast)
        self.value, self.trend = forecast + PULL * error, self.trend + HURRY * PULL * error
        return float(np.sqrt(np.mean(error**2)))


def known(field: xr.DataArray) -> bool:
    """Whether it rests on measurements, by the errors that it states itself; then a model may begin with it."""
    return "missing_points" not in field.attrs and field[f"{NAME}_standard_error"].mean() < UNSURE


def bordered(inner: np.ndarray, outer: np.ndarray, fine: xr.DataArray, coarse: xr.DataArray) -> np.ndarray:
    """The fine forecast with the border that the coarse one gives it."""
    known = coarse.copy(data=outer).interp(
        latitude=fine.latitude, longitude=fine.longitude, kwargs={"fill_value": None}
    )
    edge = np.ones(inner.shape, bool)
    edge[1:-1, 1:-1] = False
    return np.where(edge, known.values, inner)


def load(path: Path) -> tuple[int | None, Model | None, Model | None]:
    """Tick and models as they were left; nothing, if there is no file."""
    if not path.exists():
        return None, None, None
    with np.load(path) as kept:
        return int(kept["tick"]), *(Model(kept[f"{n}_value"], kept[f"{n}_trend"]) for n in ("world", "local"))


def save(path: Path, tick: int, world: Model, local: Model) -> None:
    """All or nothing: the number of the tick and what was made of it go into one file, in one step."""
    fresh = path.with_name(f".{path.name}.npz")
    models = {"world": world, "local": local}
    state = {f"{name}_{part}": getattr(model, part) for name, model in models.items() for part in vars(model)}
    np.savez(fresh, tick=tick, **state)
    os.replace(fresh, path)


def run(grid: sensorgrid.Client, path: Path, ticks: int, start: str | None) -> None:
    """So many ticks more."""
    tick, world, local = load(path)
    step = grid.grid.spacing
    query_fine = sensorgrid.Query(NAME, bbox=EUROPE, start=start)
    query_coarse = sensorgrid.Query(NAME, spacing=(10 * step[0], 10 * step[1]), start=start)
    with (
        grid.stream(query_coarse, after=tick) as globe,
        grid.stream(query_fine, after=tick) as europe,
    ):
        for coarse, fine in zip(globe, europe, strict=True):
            outer, inner = coarse.values.astype(float), fine.values.astype(float)
            if world is None or local is None:
                if not (known(coarse) and known(fine)):
                    continue  # the grid has just begun itself
                world, local = Model(outer, 0 * outer), Model(inner, 0 * inner)
            ahead = world.forecast()
            border = bordered(local.forecast(), ahead, fine, coarse)
            wrong = world.nudge(ahead, outer), local.nudge(border, inner)
            tick = int(fine.tick)
            save(path, tick, world, local)
            print(
                f"{fine.time.values:.19}Z  tick {tick}  world {outer.size} points, off by {wrong[0]:.2f} K"
                f"  local {inner.size} points, off by {wrong[1]:.2f} K",
                flush=True,
            )
            ticks -= 1
            if not ticks:
                break


def main() -> None:
    """The command."""
    options = argparse.ArgumentParser(description="A nested toy forecast of the temperature.")
    options.add_argument("--url", help="of a broker; SENSORGRID_URL or ws://localhost:7400 if left out")
    options.add_argument("--ticks", type=int, default=10, help="how many more (10)")
    options.add_argument("--state", type=Path, default=Path("forecast.npz"), help="where the state is kept")
    options.add_argument("--start", metavar="TIME", help="first moment of a new state (now)")
    chosen = options.parse_args()
    with sensorgrid.connect(chosen.url) as grid:
        run(grid, chosen.state, chosen.ticks, chosen.start)


if __name__ == "__main__":
    try:
        main()
    except sensorgrid.SensorGridError as error:
        sys.exit(f"forecast: {error}")
