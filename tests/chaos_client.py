"""A client that may be killed at any moment: what it has is in files, one per tick, and it goes on after the last.

``python chaos_client.py FOLDER FIRST NUMBER URL [URL …]``
"""

import os
import sys
from pathlib import Path

import numpy as np

import sensorgrid

QUERIES = (
    sensorgrid.Query("air_temperature"),
    sensorgrid.Query("air_temperature", bbox=(-90, -45, 90, 45), resolution=(1 / 2, 1 / 2, 1)),
    sensorgrid.Query("air_temperature", bbox=(150, -60, -120, 60)),
)


def main() -> None:
    folder, first, number, urls = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    kept = [int(path.stem) for path in folder.glob("*.npy")]
    with sensorgrid.connect(urls, roams=number != 1) as grid:
        for field in grid.stream(QUERIES[number], after=max([first - 1, *kept])):
            tick = int(field["tick"])
            part = folder / f".{tick}.part"
            with part.open("wb") as out:
                np.save(out, np.stack([field.values, field["air_temperature_standard_error"].values]))
            try:
                os.link(part, folder / f"{tick}.npy")
            except FileExistsError:
                (folder / f"{tick}.again").touch()
            part.unlink()


if __name__ == "__main__":
    main()
