"""Whether claims hold: a claim and the outcome of its command to a row."""

from dataclasses import dataclass
from typing import Any

from sensorgrid.claims.claim import Claim, Command, FoundFigure, When, shown
from sensorgrid.claims.running import CommandOutcome


@dataclass(frozen=True, slots=True)
class Verdict:
    """One row of the table."""

    command: Command
    claim: Claim
    line: str
    """the command as it was run"""
    measured: float | None = None
    holds: bool | None = None
    """None: not measured, or not judged"""
    note: str = ""
    seconds: float | None = None
    """that the command took"""
    failed: bool = False
    """whether there is no figure as the command, or reading its result, went wrong"""
    fault: str = ""
    """what was wrong with a command that has a result nevertheless"""

    @property
    def breaks(self) -> bool:
        """Whether something is not as it should be."""
        return self.failed or bool(self.fault) or (self.holds is False and not self.known)

    @property
    def known(self) -> bool:
        """Whether it is missed as it is known to be."""
        return self.holds is False and self.measured is not None and self.claim.as_known(self.measured)

    @property
    def figure(self) -> str:
        """What was measured, for people."""
        return "" if self.measured is None else shown(self.measured, self.claim.unit)

    @property
    def word(self) -> str:
        """Whether it holds, in a word."""
        if self.failed:
            return "failed"
        if self.holds is None:
            return "–"
        return "yes" if self.holds else "no, known" if self.known else "NO"

    def row(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "claim": self.claim.says,
            "command": self.line,
            "asked": self.claim.asked,
            "limit": self.claim.limit,
            "measured": self.measured,
            "unit": self.claim.unit,
            "holds": self.holds,
            "note": self.note,
            "seconds": self.seconds,
        }


def judge(outcome: CommandOutcome, quick: bool) -> list[Verdict]:
    """All claims of a command; those about quick runs only in a quick run."""
    claims = (c for c in outcome.command.claims if quick or c.when is not When.QUICK)
    return [_judge(claim, outcome, quick) for claim in claims]


def _judge(claim: Claim, outcome: CommandOutcome, quick: bool) -> Verdict:
    command = outcome.command
    line = command.line(quick)

    def verdict(**facts: Any) -> Verdict:
        return Verdict(command, claim, line, seconds=outcome.seconds, **facts)

    if (command.arguments(quick) is None or claim.when is When.FULL) and quick:
        return verdict(note=When.FULL.value)
    if outcome.lacks:
        return verdict(note=f"not measured here: {outcome.lacks}")
    if outcome.result is None:
        return verdict(failed=True, note=f"failed: {outcome.fault}")
    try:
        found = claim.measure(outcome.result | {"took_s": outcome.seconds})
        value, where = (float(found[0]), found[1]) if isinstance(found, FoundFigure) else (_number(found), "")
    except Exception as error:  # whatever a result lacks, its row says so and the others stand
        return verdict(
            failed=True, note=f"failed: no such figure in its result ({type(error).__name__}: {error})"
        )
    if value is None:
        return verdict(note="not measured here: its result has no such rows")
    holds: bool | None = claim.holds(value)
    notes = [where] if where else []
    soft = claim.when is When.QUICK or (quick and claim.when is When.FULL_BUT_SHOWN)
    if soft and not holds and not claim.as_known(value):
        holds = None
        small = "missed, but a quick run is too small to judge it"
        notes.append("missed; is the machine busy?" if claim.when is When.QUICK else small)
    if holds is False and claim.as_known(value):
        notes.append(f"known: {claim.because}")
    elif holds is False and claim.at_worst is not None:
        notes.append(f"worse than is known ({shown(claim.at_worst, claim.unit)})")
    if outcome.fault:
        notes.append(outcome.fault)
    return verdict(measured=value, holds=holds, note="; ".join(notes), fault=outcome.fault)


def _number(found: float | None) -> float | None:
    return None if found is None else float(found)
