"""All folds of a network: what `sensorgrid pipeline verify` and `sensorgrid bench reality` both call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sensorgrid.pipeline.gridding.kernels import CHEAP
from sensorgrid.pipeline.verification.engine import Learnt
from sensorgrid.pipeline.verification.folds import fold_of
from sensorgrid.pipeline.verification.network import StationNetwork, VerificationError
from sensorgrid.pipeline.verification.scores import Row, rows_of
from sensorgrid.pipeline.verification.trial import (
    FoldEstimates,
    Heard,
    KernelMethod,
    Method,
    OurMethod,
    Trial,
    pooled_heard,
    pooled_told,
    run_fold,
)

METHODS: tuple[Method, ...] = (OurMethod(), KernelMethod("nearest"), KernelMethod(CHEAP))
"""the default, and whom it has to beat"""


@dataclass(frozen=True, slots=True)
class Verified:
    """What came out for one attribute: the rows, and all that was compared, for plots."""

    network: StationNetwork
    attribute: str
    rows: list[Row]
    told: dict[str, FoldEstimates]
    """by method, over all folds"""
    heard: Heard
    learnt: tuple[Learnt, ...]
    """of each fold"""
    folds: int
    """how many were run"""


def verify(
    network: StationNetwork,
    folds: int = 10,
    seed: int = 1,
    methods: Sequence[Method] = METHODS,
    folds_run: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[Verified]:
    """Leave out the stations of each fold in turn; one result for each attribute of the network.

    `folds_run` stops after so many folds: the stations of the others are then heard, but never scored.
    """
    if not network.moments:
        raise VerificationError(f"{network.name}: found no good reading in the ticks, expected some")
    fold = fold_of(len(network), folds, seed)
    numbers = range(int(fold.max()) + 1)[:folds_run]
    every: list[list[Trial]] = []
    for number in numbers:
        say(f"{network.name}: fold {number + 1} of {len(numbers)}")

        def tell(text: str, number: int = number) -> None:
            say(f"{network.name}: fold {number + 1} of {len(numbers)}, {text}")

        every.append(run_fold(network, fold == number, methods, lattice=number == 0, say=tell))
    found = []
    for at, attribute in enumerate(network.attributes):
        trials = [trials[at] for trials in every]
        told = {m.name: pooled_told([t.told[m.name] for t in trials]) for m in methods}
        heard = pooled_heard([t.heard for t in trials])
        if not len(told[methods[0].name].reading):
            raise VerificationError(
                f"{network.name}, {attribute}: found no reading that could be left out and estimated, expected some;"
                " more stations or a longer time would help"
            )
        rows = rows_of(attribute, trials, len(network))
        learnt = tuple(t.learnt for t in trials)
        found.append(Verified(network, attribute, rows, told, heard, learnt, len(numbers)))
    return found
