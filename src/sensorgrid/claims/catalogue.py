"""The list of everything that we claim, in the order in which it is measured."""

from dataclasses import replace

from sensorgrid.claims.claim import Claim, Command, When
from sensorgrid.claims.reality import REALITY
from sensorgrid.claims.simulated import SIMULATED
from sensorgrid.claims.timed import TIMED
from sensorgrid.model.errors import SensorGridError

QUICK_S = 60.0
"""what a quick run may take on two cores with nothing else to do"""
GROUPS = {"timed": True, "deterministic": False}
"""names for `--only` that stand for many commands"""


class UnknownCommandError(SensorGridError, ValueError):
    """A name that no command has."""


def _promising(command: Command) -> Command:
    """With the promise that every `--quick` gives."""
    if command.quick != ("--quick",):
        return command
    soon = Claim(
        "`--quick` takes less than a minute",
        lambda r: r["took_s"],
        at_most=QUICK_S,
        unit="s",
        when=When.QUICK,
    )
    return replace(command, claims=(*command.claims, soon))


COMMANDS = tuple(_promising(command) for command in (*TIMED, REALITY, *SIMULATED))
"""what depends on the machine comes first, together: nothing else should run beside it"""


def chosen(names: str | None) -> tuple[Command, ...]:
    """The commands of some names with commas, groups among them; all without any."""
    if names is None:
        return COMMANDS
    wanted = [name.strip() for name in names.split(",")]
    known = {*GROUPS, *(command.name for command in COMMANDS)}
    for name in wanted:
        if name not in known:
            expected = ", ".join((*GROUPS, *(command.name for command in COMMANDS)))
            raise UnknownCommandError(f"--only: found {name!r}, expected some of {expected}")
    groups = {GROUPS[name] for name in wanted if name in GROUPS}
    return tuple(c for c in COMMANDS if c.name in wanted or c.timed in groups)
