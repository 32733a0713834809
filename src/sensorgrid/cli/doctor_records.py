"""What becomes of the first records of each source: parsed and checked as a run would do it, before it runs."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sensorgrid.cli.doctor_machine import Finding, Status

NAMES = 5
"""so many sensors are named"""
UNSEEN = ("synthetic", "kafka")
"""kinds of sources that have no records to look at: Spark need not start for them"""
HIGH = ("air_temperature", "dew_point_temperature")
"""attributes whose grids gain most from elevations"""


def check_records(settings: Any, records: int) -> Iterator[Finding]:
    """Findings for every source; Spark is started for it, and stopped again."""
    from sensorgrid.pipeline.ingest.inlet import name_of
    from sensorgrid.pipeline.ingest.sampling import sample
    from sensorgrid.pipeline.spark.session import start_session

    if all(source.kind in UNSEEN for source in settings.sources):
        for source in settings.sources:
            found = sample(None, settings, source, settings.grid.grid(), records)
            yield Finding("ok", f"records {name_of(source)}", found.nothing)
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            session = start_session("local[1]", name="sensorgrid doctor", log=Path(folder, "spark.log"))
        except Exception as error:  # whatever Java says: the other findings are worth something
            yield Finding(
                "warn", "records", f"none looked at, Spark does not start: {error}", "a Spark that starts"
            )
            return
        try:
            elevated = 0
            for source in settings.sources:
                subject = f"records {name_of(source)}"
                try:
                    found = sample(session, settings, source, settings.grid.grid(), records)
                except Exception as error:  # a source that cannot be read must not hide the others
                    text = str(error).strip().splitlines()
                    yield Finding(
                        "fail", subject, text[0] if text else repr(error), "records that can be parsed"
                    )
                    continue
                elevated += found.elevated
                yield from findings_of(subject, found, settings.grid.grid().attributes)
            yield from elevation_unused(settings.gridding, settings.grid.grid().attributes, elevated)
        finally:
            session.stop()


def findings_of(subject: str, found: Any, attributes: tuple[str, ...]) -> Iterator[Finding]:
    """One source's sample in words."""
    if found.nothing:
        yield Finding("ok", subject, found.nothing)
        return
    rows = sum(number for number, _ in found.measurements.values())
    ignored = found.tests.get("attribute", 0)
    status: Status = "ok" if found.good else "fail"
    yield Finding(
        status,
        subject,
        f"{found.records:,} of {found.origin}: {rows:,} measurements of {found.sensors:,} sensors, {found.good:,} good",
        "at least one good measurement",
    )
    for name, (number, good) in found.measurements.items():
        if good or name in attributes or not ignored:
            yield Finding("ok", subject, f"{name}: {number:,}, {good:,} good")
    others = [name for name, (_, good) in found.measurements.items() if not good and name not in attributes]
    if ignored:
        yield Finding(
            "ok", subject, f"{ignored:,} ignored, the grid does not carry them: {', '.join(others)}"
        )
    flags = {test: number for test, number in found.tests.items() if test != "attribute"}
    if flags:
        counts = ", ".join(f"{number:,} {test}" for test, number in flags.items())
        bad = set(flags) - {"missing"}
        yield Finding("warn" if bad else "ok", subject, f"refused: {counts}", "none but missing ones")
    for reason, number in found.reasons:
        yield Finding("warn", subject, f"{number:,} × {reason}")
    if found.unplaced:
        names = ", ".join(found.unplaced[:NAMES]) + (", …" if len(found.unplaced) > NAMES else "")
        yield Finding(
            "warn",
            subject,
            f"{len(found.unplaced):,} of {found.sensors:,} sensors without a position: {names}",
            "[position] in the mapping, or a line for each in the station table",
        )


def elevation_unused(gridding: Any, attributes: tuple[str, ...], elevated: int) -> Iterator[Finding]:
    """Warn if sensors have heights and the grid has none: they are not used then."""
    gains = [name for name in attributes if name in HIGH]
    if elevated and gains and getattr(gridding, "elevation", "") is None:
        yield Finding(
            "warn",
            "elevation",
            f"heights of {elevated:,} sensors, but none of the grid",
            f'elevation = "FILE.nc" in [gridding], for better grids of {", ".join(gains)} in mountains',
        )
