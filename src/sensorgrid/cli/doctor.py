"""`sensorgrid doctor`: looks at a machine and a configuration and says what is wrong, before anything runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from sensorgrid import __version__
from sensorgrid.cli import arguments
from sensorgrid.cli.output import write

console = Console()
errors = Console(stderr=True)
STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    config: Annotated[
        Path | None, typer.Argument(metavar="[GRID.TOML]", help="Also check this configuration.")
    ] = None,
    clients: Annotated[
        int, typer.Option("--clients", min=1, help="That one broker shall be able to serve.")
    ] = 1000,
    records: Annotated[
        int,
        typer.Option("--records", min=0, help="Parse so many records of each source; 0 looks at none."),
    ] = 100,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the findings here; - only them.")
    ] = None,
) -> None:
    """Check this machine, and a configuration if one is given; exit code 1 if anything is wrong.

    Example: sensorgrid doctor grid.toml
    """
    from sensorgrid.cli import doctor_config, doctor_machine

    target = arguments.read_target(json_file)
    findings = list(doctor_machine.check(clients))
    if config is not None:
        with errors.status("parsing the first records of each source"):
            findings += doctor_config.check(config, records)
    rows = [
        {"status": f.status, "subject": f.subject, "found": f.found, "expected": f.expected} for f in findings
    ]
    if write(target, {"command": "doctor", "version": __version__, "rows": rows}):
        width = max(len(f.subject) for f in findings)
        for f in findings:
            line = Text(f"{f.status:<5}", style=STYLES[f.status]).append(
                f"{f.subject:<{width}}  ", style="bold"
            )
            whole = "found " in f.found and "expected " in f.found  # an error, which says all of it
            line.append(f.found if f.status == "ok" or whole else f"found {f.found}", style="default")
            if f.status != "ok" and f.expected and not whole:
                line.append(f"; expected {f.expected}", style="default")
            console.print(line, highlight=False, soft_wrap=True)
    if any(f.status == "fail" for f in findings):
        raise typer.Exit(1)
