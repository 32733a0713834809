"""What figures were measured on."""

import os
import platform
from importlib.metadata import version
from typing import Any


def machine(*packages: str) -> dict[str, Any]:
    """Python, the packages that matter, cores, memory and system; nothing that names the machine."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "cpus": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.system(),
    }
