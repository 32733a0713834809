"""The table of all claims as a page of Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sensorgrid.claims.running import CommandOutcome, MeasuredCode
from sensorgrid.claims.verdict import Verdict

HEAD = """# Figures

What we claim, what is asked, what was measured, and the command that does it. This page is written by
`{line}`, and never by hand. Every row can be had alone: run the command above its
table.

What only a test can show (exactly once through kill -9, recovery, parity of simulator and runtime) is not here but in
`tests/`.
"""


def page(
    verdicts: Sequence[Verdict],
    outcomes: Sequence[CommandOutcome],
    code: MeasuredCode,
    machine: dict[str, Any],
    quick: bool,
    line: str,
) -> str:
    """The whole page."""
    dates = sorted({outcome.date for outcome in outcomes if outcome.date})
    parts = [
        HEAD.format(line=line),
        "\n".join(_facts(verdicts, code, machine, dates, quick)),
    ]
    themes = list(dict.fromkeys(verdict.command.theme for verdict in verdicts))
    parts += [_theme(theme, [v for v in verdicts if v.command.theme == theme]) for theme in themes]
    parts.append(_misses(verdicts))
    parts.append(_times(outcomes, quick))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def tally(verdicts: Iterable[Verdict]) -> str:
    """How many hold, in a sentence."""
    found = list(verdicts)
    known = sum(v.holds is False and not v.breaks for v in found)
    broken = sum(v.breaks for v in found)
    unjudged = sum(v.holds is None and not v.breaks for v in found)
    texts = [f"{len(found)} claims", f"{sum(v.holds is True and not v.breaks for v in found)} hold"]
    texts += [f"{known} known not to hold"] if known else []
    texts += [f"{broken} broken or failed"] if broken else []
    texts += [f"{unjudged} not judged"] if unjudged else []
    return ", ".join(texts)


def _facts(
    verdicts: Sequence[Verdict], code: MeasuredCode, machine: dict[str, Any], dates: list[str], quick: bool
) -> Iterator[str]:
    changed = ", with changes that are not committed" if code.commit.endswith("+") else ""
    yield f"- Code: commit `{code.commit.rstrip('+')}`{changed}, version {code.version}"
    if dates:
        yield f"- Measured: {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "")
    rest = ", ".join(f"{name} {value}" for name, value in machine.items() if name not in _SAID)
    yield (
        f"- Machine: {machine['cpus']} cores, {machine['memory_gib']:g} GiB, {machine['system']},"
        f" Python {machine['python']}{', ' + rest if rest else ''}"
    )
    yield f"- Size: {'quick: the smallest that every command has' if quick else 'full'}"
    yield f"- {tally(verdicts)}"


_SAID = ("cpus", "memory_gib", "system", "python")


def _theme(theme: str, verdicts: list[Verdict]) -> str:
    lines = [f"## {theme}"]
    for name in dict.fromkeys(verdict.command.name for verdict in verdicts):
        mine = [verdict for verdict in verdicts if verdict.command.name == name]
        depends = "depends on the machine" if mine[0].command.timed else "the same on any machine"
        lines += ["", f"`{mine[0].line}` ({depends})", "", "| claim | asked | measured | holds | note |"]
        lines += ["|---|---|---|---|---|"]
        lines += [
            f"| {_cell(v.claim.says)} | {v.claim.asked} | {v.figure} | {_word(v)} | {_cell(v.note)} |"
            for v in mine
        ]
    return "\n".join(lines)


def _word(verdict: Verdict) -> str:
    return verdict.word if verdict.word in ("yes", "–") else f"**{verdict.word}**"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _misses(verdicts: Sequence[Verdict]) -> str:
    missed = [v for v in verdicts if v.holds is False or v.breaks]
    lines = ["## What does not hold", ""]
    if not missed:
        return "\n".join([*lines, "Nothing: every claim that was judged holds."])
    for v in missed:
        figure = f"{v.figure}, asked {v.claim.asked}" if v.figure else "no figure"
        lines.append(f"- {v.command.theme}: {v.claim.says}: {figure}. {_why(v)}")
    return "\n".join(lines)


def _why(verdict: Verdict) -> str:
    if verdict.known and not verdict.breaks:
        return f"Known: {_cell(verdict.claim.because)}."
    return f"**Not expected.** {_cell(verdict.note)}".rstrip()


def _times(outcomes: Sequence[CommandOutcome], quick: bool) -> str:
    timed = [outcome for outcome in outcomes if outcome.seconds is not None]
    total = sum(outcome.seconds or 0.0 for outcome in timed)
    lines = ["## How long it took", "", "| command | seconds |", "|---|---|"]
    lines += [f"| `{outcome.command.line(quick)}` | {outcome.seconds:,.0f} |" for outcome in timed]
    return "\n".join([*lines, f"| all | {total:,.0f} |"])
