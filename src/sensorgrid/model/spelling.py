"""What people may have meant."""

import difflib
from collections.abc import Iterable


def nearest(found: str, known: Iterable[str]) -> str:
    """What may have been meant, and else all that could be.

    >>> nearest("tik", ["shape", "tick"])
    'tick, perhaps'
    >>> nearest("x", ["shape", "tick"])
    'one of shape, tick'
    """
    names = sorted(known)
    close = difflib.get_close_matches(found, names, n=1)
    return f"{close[0]}, perhaps" if close else f"one of {', '.join(names)}"
