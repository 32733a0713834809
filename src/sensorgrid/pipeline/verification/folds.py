"""Which stations are left out together: every station once, whole, with all that it ever said."""

import numpy as np

from sensorgrid.pipeline.verification.network import Bools, Ints, StationNetwork, VerificationError


def folds_for(share: float) -> int:
    """How many folds leave out such a share of the stations each.

    Examples
    --------
    >>> folds_for(0.1), folds_for(0.34)
    (10, 3)
    """
    if not 0.0 < share <= 0.5:
        raise VerificationError(f"--leave-out: found {share:.0%}, expected more than 0 % and at most 50 %")
    return max(round(1.0 / share), 2)


def fold_of(stations: int, folds: int, seed: int) -> Ints:
    """(stations,) the fold in which each is left out; sizes differ by one at most."""
    if stations < 2:
        raise VerificationError(f"stations: found {stations}, expected at least 2: one has to be left out")
    turn = np.arange(stations) % min(folds, stations)
    return np.random.default_rng(seed).permutation(turn)


def split(network: StationNetwork, left_out: Bools) -> tuple[StationNetwork, StationNetwork]:
    """The network without some stations, and these alone; no station is in both."""
    return network.of(~left_out), network.of(left_out)
