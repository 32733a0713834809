"""Is the air bad, and where is it worse? Operators over the grids of a lake, in one process.

sensorgrid pipeline backfill examples/air.toml
python examples/air.py

Three operators: the mean of an area, the dust that a tenth of another area exceeds, and whether the second area has had
twice the dust of the first for two ticks. `sensorgrid operator backfill` gives the same numbers with Spark.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import sensorgrid
from sensorgrid.operators.local import evaluate
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.settings import read_settings

DUST = "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air"
MEAN = f"mean({DUST}, 'europe')"
WORST = f"percentile({DUST}, 0.9, 'plain')"
WORSE = f"hold(mean({DUST}, 'plain') > 2 * mean({DUST}, 'europe'), 2)"


def main() -> None:
    """One line a tick."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("air.toml"))
    settings = read_settings(parser.parse_args().config)
    grid, areas = settings.grid.grid(), settings.areas_of()
    try:
        data = sensorgrid.read_lake(settings.lake)
    except sensorgrid.SensorGridError as error:
        sys.exit(f"air: {error}")
    mean, worst, worse = (
        evaluate(operator, data, areas, grid, Regions(grid).boxes) for operator in (MEAN, WORST, WORSE)
    )
    for tick in range(mean.sizes["time"]):
        when = np.datetime_as_string(mean.time.values[tick], unit="m")
        value, error = (1e9 * float(part[tick]) for part in (mean, mean.error))
        told = {1.0: "worse in the plain", 0.0: "no worse in the plain"}.get(
            float(worse[tick]), "not known yet"
        )
        share = float(mean.coverage[tick])
        high = 1e9 * float(worst[tick])
        print(
            f"{when}  Europe {value:.1f} ± {error:.1f} µg/m³, covered {share:.0%}  plain {high:.0f} µg/m³  {told}"
        )


if __name__ == "__main__":
    main()
