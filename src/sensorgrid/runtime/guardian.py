"""A tiny process that outlives its parent by a moment and ends what the parent left behind, however the parent ended.

Its input names process groups: ``+123`` is one to watch, ``-123`` one that is gone. The end of the input is the end
of the parent, and of all groups that were named last. It is run as a file, without the package, to be small.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Watch until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent decides when
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
