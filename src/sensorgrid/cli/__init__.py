"""The command line: thin. Arguments in, calls, tables out."""

import signal
import sys

if sys.argv[1:2] == ["broker"] and hasattr(signal, "SIGHUP"):
    # It would end the broker while the rest is imported. Its file is read later anyway.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
