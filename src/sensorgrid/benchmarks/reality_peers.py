"""Other people's ways to interpolate, on the same readings after the same checks: PyKrige beside gridpp."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from sensorgrid.pipeline.gridding.kernels import CHEAP
from sensorgrid.pipeline.gridding.kernels.interface import Floats, Observations
from sensorgrid.pipeline.verification.engine import Estimate, Learnt
from sensorgrid.pipeline.verification.trial import KernelMethod, Method, OurMethod

PYKRIGE = "pykrige"
GRIDPP = "optimal"
"""the kernel that calls gridpp"""
STATIONS_MAX = 1200
"""PyKrige looks at all pairs of stations each time: a larger network is cut into pieces"""

_NEIGHBOURS = 20
_FITTED = 400
"""stations to which PyKrige fits its variogram"""


@dataclass(frozen=True, slots=True)
class PyKrige:
    """Ordinary kriging with a moving window and an exponential variogram, fitted by PyKrige itself."""

    name: str = PYKRIGE

    def __call__(self, heard: Observations, there: Observations, learnt: Learnt) -> Estimate:
        """See `Method`; the kriging variance holds the nugget, so its root is the error of the next reading."""
        values, error = np.empty(len(there)), np.empty(len(there))
        for part in _tasks(heard, there):
            values[part.points], error[part.points] = _kriged(
                heard.positions[part.heard], heard.values[part.heard], there.positions[part.points]
            )
        return Estimate(values, values - error, values + error)


@dataclass(frozen=True, slots=True)
class _Task:
    """Points and the stations that they are estimated from."""

    points: Any
    heard: Any


def _tasks(heard: Observations, there: Observations) -> list[_Task]:
    """All at once, or in pieces of the map whose points share their stations."""
    if len(heard) <= STATIONS_MAX:
        return [_Task(slice(None), slice(None))]
    from scipy.cluster.vq import kmeans2
    from scipy.spatial import cKDTree

    pieces = 3 * len(heard) // STATIONS_MAX + 1
    centres, piece = kmeans2(there.positions, pieces, seed=1, minit="points", missing="warn")
    tree = cKDTree(heard.positions)
    tasks = []
    for number in np.unique(piece):
        points = np.flatnonzero(piece == number)
        _, near = tree.query(there.positions[points], k=min(3 * _NEIGHBOURS, len(heard)))
        _, around = tree.query(centres[number], k=min(STATIONS_MAX // 3, len(heard)))
        tasks.append(_Task(points, np.unique(np.concatenate([near.ravel(), around]))))
    return tasks


def _kriged(positions: Floats, values: Floats, points: Floats) -> tuple[Floats, Floats]:
    from pykrige.ok import OrdinaryKriging

    planar = positions.shape[1] == 2
    kind = "euclidean" if planar else "geographic"
    x, y = degrees(positions)
    px, py = degrees(points)
    # A singular system is what two readings at one place make of ordinary kriging without a nugget.
    options = {"variogram_model": "exponential", "coordinates_type": kind, "pseudo_inv": True}
    some = np.random.default_rng(1).choice(len(values), min(_FITTED, len(values)), replace=False)
    unit = float(np.std(values)) or 1.0  # its least squares have tolerances of their own
    scaled = (values - values.mean()) / unit
    fitted = OrdinaryKriging(x[some], y[some], scaled[some], nlags=12, weight=True, **options)
    sill, reach, nugget = (float(p) for p in fitted.variogram_model_parameters)
    nugget = max(nugget, 1e-4)
    made = OrdinaryKriging(x, y, scaled, nlags=2, variogram_parameters=[sill, reach, nugget], **options)
    found, variance = made.execute(
        "points", px, py, n_closest_points=min(_NEIGHBOURS, len(values)), backend="loop"
    )
    spread = np.sqrt(np.maximum(np.asarray(variance, np.float64), 0.0))
    return np.asarray(found, np.float64) * unit + values.mean(), spread * unit


def degrees(positions: Floats) -> tuple[Floats, Floats]:
    """Longitude and latitude of positions on the earth; x and y on a plane."""
    if positions.shape[1] == 2:
        return positions[:, 0], positions[:, 1]
    north = np.degrees(np.arctan2(positions[:, 2], np.hypot(positions[:, 0], positions[:, 1])))
    return np.degrees(np.arctan2(positions[:, 1], positions[:, 0])), north


@cache
def peers() -> tuple[tuple[Method, ...], tuple[str, ...]]:
    """Everybody who can be measured here, ours first, and why others cannot."""
    found: list[Method] = [OurMethod(), KernelMethod("nearest"), KernelMethod(CHEAP)]
    reasons = []
    for package, method in (("gridpp", KernelMethod(GRIDPP)), ("pykrige", PyKrige())):
        if find_spec(package):
            found.append(method)
        else:
            reasons.append(
                f"{method.name}: found no package {package}, expected `pip install 'sensorgrid[bench]'`"
            )
    return tuple(found), tuple(reasons)
