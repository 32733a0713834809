"""What a stream with a new checkpoint still knows: the measurements that the lake keeps beside its grids.

A stream that starts again goes on from its checkpoint, with all rows that still matter. With a new checkpoint its books
are empty. Where gaps are held, they begin with the rows of the lake: a held value then is the same as if the stream had
never ended, because it is made of nothing but measurements. These rows were counted when they came.
"""

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sensorgrid.pipeline.gridding.groups import groups_of
from sensorgrid.pipeline.gridding.measurements import Measurements, concatenate
from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.plan import Plan
from sensorgrid.pipeline.spark.packing import by_region

Remembered = dict[tuple[str, int], Measurements]
"""by group and region"""


@lru_cache(maxsize=2)
def remembered(lake: Lake, plan: Plan, first: int) -> Remembered:
    """Rows of the ticks from `first` up to the one before the stream's first; read once per process."""
    tiles = lake.tiles(ticks=(first, plan.start_tick - 1), columns=["observations"])
    rows = pa.Table.from_struct_array(pc.list_flatten(tiles["observations"].combine_chunks()))
    place = {
        name: (number, code)
        for number, group in enumerate(groups_of(plan.grid.attributes))
        for code, name in enumerate(group.inputs)
    }
    rows = rows.filter(pc.is_in(rows["attribute"], pa.array(list(place), pa.string())))
    if not len(rows):
        return {}
    places = np.array([place[name] for name in rows["attribute"].to_pylist()])
    sensors = lake.sensors()
    at = pc.index_in(rows["sensor"], sensors["number"].combine_chunks()).combine_chunks()
    heights = pc.fill_null(sensors["elevation"].combine_chunks().take(at), float("nan"))
    measured = Measurements(
        rows["sensor"].to_numpy(),
        rows["time"].cast(pa.int64()).to_numpy(),
        rows["longitude"].to_numpy(),
        rows["latitude"].to_numpy(),
        rows["value"].to_numpy(),
        places[:, 1].astype(np.uint8),
        np.ones(len(rows), np.uint8),
        heights.to_numpy(zero_copy_only=False).astype(np.float32),
    )
    found: dict[tuple[str, int], list[Measurements]] = {}
    for group, region, part in by_region(measured, places[:, 0].astype(np.int64), plan):
        found.setdefault((group, region), []).append(part)
    return {key: concatenate(parts) for key, parts in found.items()}
