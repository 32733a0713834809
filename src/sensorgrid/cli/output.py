"""Results as JSON, for programs."""

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from sensorgrid import __version__


def result_of(command: str, **facts: Any) -> dict[str, Any]:
    """What a command found, with what it takes to find it again."""
    return {"command": command, "version": __version__} | facts


def write(path: Path | None, result: dict[str, Any]) -> bool:
    """Write a result before anything is printed, which may fail; says whether to print at all."""
    text = json.dumps(result, indent=1) + "\n"
    if path is None:
        return True
    if str(path) == "-":
        sys.stdout.write(text)
        return False
    path.write_text(text)
    Console(stderr=True).print(f"wrote {path}", style="dim")
    return True
