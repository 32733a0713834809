"""How much smaller the error of a mean is than the mean of the errors.

Errors of neighbouring points are alike. Taken as independent, the error of a mean over an area comes out four times
too small; taken as equal, it never shrinks. With a correlation exp(-d / ℓ) it is the mean of the errors times the root
of ``G = ΣΣ wᵢ wⱼ exp(-dᵢⱼ / ℓ) / (Σ w)²``, which depends on the area only. The length ℓ follows from the range L over
which values are alike and the spacing s of sensors: ``1/ℓ = 1/L + 1/(0.7 s)``. Where the spacing is not known ℓ is L,
which claims less than could be claimed.
"""

from math import pi

import numpy as np

from sensorgrid.model.grid import Grid
from sensorgrid.operators.weights import Floats, Weights

RADIUS_M = 6_371_000.0
LENGTHS_M: dict[str, float] = {
    "air_temperature": 600e3,
    "dew_point_temperature": 600e3,
    "air_pressure_at_mean_sea_level": 1200e3,
    "relative_humidity": 400e3,
    "wind_speed": 400e3,
    "wind_from_direction": 400e3,
    "eastward_wind": 400e3,
    "northward_wind": 400e3,
    "precipitation_amount": 100e3,
    "sea_surface_temperature": 800e3,
    "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air": 150e3,
    "sea_surface_wave_significant_height": 500e3,
}
"""range of each attribute, before anything is known of the data; of others, errors are taken as alike everywhere"""
BLOCKS = 8
"""an area is looked at in so many blocks along each axis"""


def length_of(range_m: float, spacing_m: float | None = None) -> float:
    """The length over which errors are alike.

    >>> round(length_of(600e3, 100e3))
    62687
    """
    return range_m if spacing_m is None else 1 / (1 / range_m + 1 / (0.7 * spacing_m))


def damping(weights: Weights, grid: Grid, length_m: float | None) -> float:
    """The root of G; 1 if nothing is known of how far errors are alike."""
    if length_m is None or not np.isfinite(length_m):
        return 1.0
    weight, x, y, side_m = _blocks(weights, grid)
    place = _metres(x, y, grid)
    apart = np.sqrt(((place[:, None, :] - place[None, :, :]) ** 2).sum(axis=-1))
    alike = np.exp(-apart / length_m)
    inside = side_m / length_m
    # The mean of exp(-d / ℓ) over a square: 1 - 0.52 x for a small one, 2π / x² for a large one.
    np.fill_diagonal(alike, 1 / (1 + 0.5214 * inside + inside**2 / (2 * pi)))
    part = weight / weight.sum()
    return float(np.sqrt(min(1.0, part @ alike @ part)))


def _blocks(weights: Weights, grid: Grid) -> tuple[Floats, Floats, Floats, Floats]:
    """Blocks that an area meets: weight, middle x and y, length of a side in metres."""
    x0, x1, y0, y1 = weights.whole.T
    wide = weights.box.x1 - weights.box.x0
    by, bx = np.divmod(weights.border, wide)
    left, right = (
        min(x0.min(initial=wide), bx.min(initial=wide)),
        max(x1.max(initial=0), bx.max(initial=0) + 1),
    )
    low, high = (
        min(y0.min(initial=1 << 40), by.min(initial=1 << 40)),
        max(y1.max(initial=0), by.max(initial=0) + 1),
    )
    columns = np.unique(np.linspace(left, right, BLOCKS + 1).round().astype(np.int64))
    lines = np.unique(np.linspace(low, high, BLOCKS + 1).round().astype(np.int64))
    until = np.concatenate([[0.0], np.cumsum(weights.rows)])
    across = np.clip(np.minimum(x1[:, None], columns[1:]) - np.maximum(x0[:, None], columns[:-1]), 0, None)
    top, bottom = np.minimum(y1[:, None], lines[1:]), np.maximum(y0[:, None], lines[:-1])
    up = np.where(top > bottom, until[np.maximum(top, bottom)] - until[bottom], 0.0)
    found = up.T @ across.astype(np.float64)
    at_y = np.searchsorted(lines, by, side="right") - 1
    at_x = np.searchsorted(columns, bx, side="right") - 1
    np.add.at(found, (at_y, at_x), weights.border_weight)
    row, column = np.nonzero(found)
    (dx, dy), (west, south) = grid.spacing, grid.extent[:2]
    x = west + (weights.box.x0 + (columns[column] + columns[column + 1]) / 2) * dx
    y = south + (weights.box.y0 + (lines[row] + lines[row + 1]) / 2) * dy
    points = found[row, column]
    one = dx * dy if grid.coordinates == "planar" else np.radians(dx) * np.radians(dy) * RADIUS_M**2
    return points, x, y, np.sqrt(points * one)


def _metres(x: Floats, y: Floats, grid: Grid) -> Floats:
    """Positions whose distances are metres."""
    if grid.coordinates == "planar":
        return np.stack([x, y], axis=1)
    a, b = np.radians(x), np.radians(y)
    return RADIUS_M * np.stack([np.cos(b) * np.cos(a), np.cos(b) * np.sin(a), np.sin(b)], axis=1)
