"""What figures were measured on."""

import os
import platform
from importlib.metadata import version
from typing import Any


def machine(*packages: str) -> dict[str, Any]:
    """Python, the packages that matter, cores and system; nothing that names the machine."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "cpus": os.cpu_count(),
        "system": platform.system(),
    }
