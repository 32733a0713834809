"""What must hold of a lake that a stream has written, however often its driver was killed."""

import json
from collections import Counter
from pathlib import Path

from sensorgrid.pipeline.lake.folder import Lake
from sensorgrid.pipeline.settings import PipelineSettings, SyntheticSource
from sensorgrid.pipeline.sources.synthetic import SyntheticSettings

Identity = tuple[str, int, str, int]
"""attribute, tick, region, revision"""


def check_grids(settings: PipelineSettings) -> Counter[Identity]:
    """Every attribute, tick and region is there, each revision once, without a hole; what there is."""
    lake, grid = Lake(settings.lake), settings.grid.grid()
    plan = lake.plan()
    assert plan is not None
    rows = lake.tiles(columns=["attribute", "tick", "region", "revision"], latest=False).to_pylist()
    identities = Counter((r["attribute"], r["tick"], r["region"], r["revision"]) for r in rows)

    assert identities
    assert set(identities.values()) == {1}
    newest = max(r["tick"] for r in rows)
    revisions: dict[tuple[str, int, str], list[int]] = {}
    for attribute, tick, region, revision in identities:
        revisions.setdefault((attribute, tick, region), []).append(revision)
    regions = [format(n, f"0{grid.region_digits}b") for n in range(1 << grid.region_digits)]
    expected = {
        (a, t, r) for a in grid.attributes for t in range(plan.start_tick, newest + 1) for r in regions
    }
    assert set(revisions) == expected
    assert all(sorted(found) == list(range(len(found))) for found in revisions.values())
    return identities


def check_ledgers(settings: PipelineSettings) -> None:
    """Every batch has one ledger, all add up, and what they count is what the synthetic earth has sent."""
    lake = Lake(settings.lake)
    ledgers = list(lake.ledgers())
    assert [counts["batch"] for counts in ledgers] == list(range(len(ledgers)))
    assert all(counts["balanced"] for counts in ledgers)
    total = lake.totals()
    assert total.raw == rows_sent(settings, len(ledgers) - 1)
    assert total.balanced


def rows_sent(settings: PipelineSettings, batch: int) -> int:
    """How many rows the synthetic earth sent up to the end of a batch, by the offsets in the checkpoint."""
    lines = (Path(settings.checkpoint_of()) / "offsets" / str(batch)).read_text().splitlines()
    clock, offset = (json.loads(line) for line in lines[2:])
    assert "beat" in clock, (
        "the clock is asked first: nothing that was there when a tick fell due is left behind"
    )
    (source,) = settings.sources
    assert isinstance(source, SyntheticSource)
    earth = SyntheticSettings.of({k: str(v) for k, v in source.options.items()}).earth
    return len(earth.reports(offset["start_ms"] / 1000, offset["arrival_ms"] / 1000))
