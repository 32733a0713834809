"""`sensorgrid bench all`: everything that we claim, and whether it holds."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sensorgrid.cli import arguments
from sensorgrid.cli.experiment import on_sigterm
from sensorgrid.cli.output import result_of, write

if TYPE_CHECKING:
    from sensorgrid.claims.claim import Command
    from sensorgrid.claims.running import CommandOutcome, MeasuredCode
    from sensorgrid.claims.verdict import Verdict

console = Console()
errors = Console(stderr=True)


def bench_all(
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write the table here; - writes it instead."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The smallest sizes: under ten minutes instead of an hour.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            metavar="DIR",
            help="Keep what each command wrote here, and take from here what is of the same code and arguments.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="NAME,NAME",
            help="Some commands, or timed, or deterministic; a wrong name lists all.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", metavar="FILE", help="Also write the table as a page of Markdown."),
    ] = None,
) -> None:
    """Everything that we claim: the command that shows it, what is asked, what was measured, whether it holds.

    Runs every benchmark, every experiment and the demo once, each as a command of its own. Exit code 1 if a command
    fails or a claim breaks that is not known not to hold.

    Example: sensorgrid bench all --quick --folder figures
    """
    from sensorgrid.claims import catalogue, running, verdict
    from sensorgrid.claims import page as pages

    target, commands = arguments.read_target(json_file), catalogue.chosen(only)
    if str(page) == "-":
        raise arguments.ArgumentError("--page: found '-', expected a file")
    arguments.read_target(page, "--page")
    code = running.code_here()
    with _place(folder) as place, on_sigterm():
        outcomes = [
            _run(command, number, len(commands), quick, place, code)
            for number, command in enumerate(commands, start=1)
        ]
    verdicts = [row for outcome in outcomes for row in verdict.judge(outcome, quick)]
    args, machine = {"quick": quick, "only": only}, running.machine_here()
    rows = [row.row() for row in verdicts]
    shown = write(target, result_of("bench all", commit=code.commit, args=args, machine=machine, rows=rows))
    if page is not None:
        line = " ".join(
            [
                "sensorgrid bench all",
                *(["--quick"] if quick else []),
                *([f"--only {only}"] if only else []),
                "--page FILE",
            ]
        )
        page.write_text(pages.page(verdicts, outcomes, code, machine, quick, line))
        errors.print(f"wrote {page}", style="dim")
    if shown:
        show(console, verdicts)
        seconds = sum(outcome.seconds or 0.0 for outcome in outcomes if not outcome.kept)
        console.print(f"{pages.tally(verdicts)}; commit {code.commit}; {seconds:,.0f} s", highlight=False)
    if any(row.breaks for row in verdicts):
        raise typer.Exit(1)


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    """Where results are kept: here, or for as long as the command runs."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="sensorgrid-claims-") as name:
            yield Path(name)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise arguments.ArgumentError(
            f"--folder: found {str(folder)!r} ({error.strerror}), expected a folder, or where one can be made"
        ) from None
    yield folder.resolve()


def _run(
    command: "Command", number: int, count: int, quick: bool, place: Path, code: "MeasuredCode"
) -> "CommandOutcome":
    """One command, with a word before and after it."""
    from sensorgrid.claims import running

    title = f"{number} of {count}: {escape(command.line(quick))}"
    with errors.status(title) as status:
        if command.arguments(quick) is not None and not errors.is_terminal:
            errors.print(title, highlight=False, soft_wrap=True)
        outcome = running.run(command, quick, place, code, lambda text: status.update(f"{title}, {text}"))
    said = f"{outcome.seconds:,.0f} s" if outcome.seconds is not None else "full only"
    if outcome.kept:
        said = f"taken from {place}"
    said = outcome.lacks or outcome.fault or said
    errors.print(
        f"{title}: {escape(said)}", style="red" if outcome.fault else "dim", highlight=False, soft_wrap=True
    )
    return outcome


def show(console: Console, verdicts: list["Verdict"]) -> None:
    """One table, command by command."""
    table = Table(title="What we claim", title_justify="left")
    table.add_column("claim")
    for name in ("asked", "measured"):
        table.add_column(name, justify="right")
    table.add_column("holds")
    before, told = "", ""
    for row in verdicts:
        if row.command.name != before:
            table.add_section()
            table.add_row(f"[bold]{escape(row.line)}[/bold]")
            before, told = row.command.name, ""
        # Why a command failed is the same for all its rows.
        note = (
            f"\n[dim]{escape(row.note)}[/dim]" if row.note and not (row.failed and row.note == told) else ""
        )
        told = row.note
        style = "red" if row.breaks else "yellow" if row.holds is False else "green" if row.holds else ""
        word = f"[{style}]{row.word}[/{style}]" if style else row.word
        table.add_row(escape(row.claim.says) + note, row.claim.asked, row.figure, word)
    console.print(table)
