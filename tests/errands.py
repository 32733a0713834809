"""Work for processes of their own, which find it by its name."""

import os
from collections.abc import Callable

Report = Callable[[str], None]


def works(report: Report, number: int) -> int:
    report("half way")
    return 2 * number


def fails(report: Report) -> None:
    report("about to")
    raise ValueError("no room")


def dies(report: Report) -> None:
    os._exit(7)
