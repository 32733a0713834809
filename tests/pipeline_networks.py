"""Small networks of stations that are made up: a smooth field, noise, and ticks."""

import numpy as np

from sensorgrid.pipeline.gridding.kernels.interface import Observations
from sensorgrid.pipeline.verification.network import Moment, StationNetwork

HOUR_US = 3_600_000_000


def made(stations: int, ticks: int, seed: int = 0, attribute: str = "air_temperature") -> StationNetwork:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, 1e6, (2, stations))
    moments = []
    for tick in range(ticks):
        truth = 285 + 5 * np.sin(x / 2e5 + tick / 5) * np.cos(y / 3e5)
        values = truth + rng.normal(0, 0.5, stations)
        observations = Observations(np.stack([x, y], axis=-1), values, np.zeros(stations))
        moments.append(
            Moment(
                tick, (tick + 1) * HOUR_US, np.arange(stations), np.ones(stations, np.bool_), (observations,)
            )
        )
    return StationNetwork("made", (attribute,), tuple(moments), x, y, "planar", 3600.0)
