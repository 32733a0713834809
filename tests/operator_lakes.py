"""A small lake for operators, with all that can be wrong with one."""

from pathlib import Path

import numpy as np

from operator_worlds import GRID, TICKS, fields
from sensorgrid.pipeline.gridding.measurements import empty
from sensorgrid.pipeline.gridding.regions import Regions
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.lake.tiles import Basis, Block, Identity, table_of
from sensorgrid.pipeline.plan import HaloEntry, Plan

REGIONS = Regions(GRID)


def make_lake(folder: Path, seed: int = 5) -> Lake:
    """A lake with holes, a region that never came, one without observations, and older revisions that are wrong."""
    lake, blocks = Lake(str(folder)).create(), []
    lake.save_plan(Plan(GRID, TICKS[0], (HaloEntry(TICKS[0], "air_temperature", (1.0,) * 8, ""),)))
    for tick, attributes in fields(seed, holes=0.1).items():
        for name, (values, errors, _) in attributes.items():
            for number, box in enumerate(REGIONS.boxes):
                if (tick, number) == (TICKS[2], 1):
                    continue
                part = np.s_[box.y0 : box.y1, box.x0 : box.x1]
                seen = np.full(64, number != 3, np.uint8)
                basis = Basis(seen, np.where(seen, 1, np.nan).astype(np.float32), None, None, "prior")
                for revision in range(1 + (number == 2)):
                    wrong = 50 if number == 2 and not revision else 0
                    identity = Identity(name, tick, REGIONS.name(number), revision)
                    found = (values[part] + wrong).ravel()
                    blocks.append(
                        Block(
                            identity,
                            found,
                            errors[part].ravel(),
                            1,
                            "k",
                            empty(),
                            np.empty(0, np.uint8),
                            (),
                            basis,
                        )
                    )
    lake.write("tiles", table_of(blocks, GRID), ("attribute", "day"), "fill", 0, 0)
    return lake
