"""BUFR messages of weather services as records, through `pdbufr` and ecCodes (``pip install 'sensorgrid[bufr]'``).

The mapping's columns are the keys of ecCodes (``airTemperature``, ``latitude``) or what `pdbufr` computes
(``WMO_station_id``, ``data_datetime``): see `mappings/bufr.toml`. Each observation becomes a JSON object. Values are
in the units of the tables of the WMO, which are mostly SI already.
"""

import json
import math
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

from sensorgrid.model.errors import SensorGridError

TOGETHER = 5_000
"""observations that are handed on together"""


class BufrError(SensorGridError, RuntimeError):
    """A library that is missing; only ever seen as the reason of a dead letter."""


def observations_of(data: bytes, columns: tuple[str, ...]) -> Iterator[list[tuple[str, str | None]]]:
    """Observations of all messages in a file, as JSON texts, each with the reason why it cannot be used, if any.

    A key that a message does not have is missing in its observations.
    """
    try:
        import pdbufr
    except (ImportError, RuntimeError) as fault:  # pdbufr without the library behind it
        raise BufrError(
            f"format bufr: found no pdbufr ({fault}), expected it: pip install 'sensorgrid[bufr]'"
        ) from None
    messages = list(_messages(data))
    if not messages:
        raise BufrError("found no BUFR message, expected one at least")
    try:
        rows = _read(pdbufr, b"".join(messages), columns)
    except Exception:  # one message spoils the file: take them one by one
        rows = []
        for message in messages:
            try:
                rows += _read(pdbufr, message, columns)
            except Exception as fault:  # of the library, by whatever the message holds
                reason = (
                    f"BUFR message of {len(message)} bytes cannot be read: {type(fault).__name__}: {fault}"
                )
                rows.append(("", reason[:300]))
    for start in range(0, len(rows), TOGETHER):
        yield rows[start : start + TOGETHER]


def _messages(data: bytes) -> Iterator[bytes]:
    """The messages of a file, by the lengths that they say; what stands between them (headings) is left out."""
    at = data.find(b"BUFR")
    while at >= 0:
        length = int.from_bytes(data[at + 4 : at + 7], "big")
        end = at + max(length, 8)
        yield data[at:end]
        at = data.find(b"BUFR", end)


def _read(pdbufr: Any, data: bytes, columns: tuple[str, ...]) -> list[tuple[str, str | None]]:
    with tempfile.NamedTemporaryFile(suffix=".bufr") as file:
        file.write(data)
        file.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = pdbufr.read_bufr(file.name, columns=columns, required_columns=False)
    rows = table.to_dict("records")
    return [(json.dumps({key: _plain(value) for key, value in row.items()}), None) for row in rows]


def _plain(value: Any) -> Any:
    """A value that JSON knows; None where there is none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)) or str(value) == "NaT":
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "item"):
        return _plain(value.item())
    return value if isinstance(value, int | float | str) else str(value)
