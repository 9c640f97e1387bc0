"""Writes the tables of docs/chaos.md: a line for each part of a long run, and sums by sink."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.chaos.harness import RoundSummary

PAGE = Path(__file__).parents[2] / "docs" / "chaos.md"
SUMS, PARTS = "## Sums", "## Parts"
HEAD = (
    "sink",
    "seed",
    "rounds",
    "windows",
    "rows",
    "faults",
    "lost",
    "doubled",
    "foreign",
    "else wrong",
    "seconds",
)


def record(done: Sequence[RoundSummary], seed: int, page: Path = PAGE) -> None:
    """Adds a line for the rounds to the page, and computes the sums again."""
    text = page.read_text(encoding="utf-8")
    parts = [*_lines(text.partition(PARTS)[2]), line_of(done, seed)]
    page.write_text(
        f"{text.partition(SUMS)[0]}{SUMS}\n\n{_table(sums(parts))}\n{PARTS}\n\n{_table(parts)}",
        encoding="utf-8",
    )


def line_of(done: Sequence[RoundSummary], seed: int) -> list[str]:
    """Returns the line of a part."""
    numbers = (
        len(done),
        sum(f.options.windows for f in done),
        sum(f.rows for f in done),
        sum(f.hit for f in done),
        sum(f.lost_messages for f in done),
        sum(f.doubled for f in done),
        sum(f.foreign for f in done),
        sum(len(f.violations) for f in done),
        round(sum(f.seconds for f in done)),
    )
    return [done[0].options.kind, str(seed), *(f"{n:,}" for n in numbers)]


def sums(parts: Sequence[Sequence[str]]) -> list[list[str]]:
    """Returns the sums by sink; the column of the seed has the number of parts."""
    lines = []
    for kind in sorted({part[0] for part in parts}):
        sink_parts = [part for part in parts if part[0] == kind]
        totals = [
            sum(int(part[n].replace(",", "")) for part in sink_parts) for n in range(2, len(HEAD))
        ]
        lines.append([kind, f"{len(sink_parts)} parts", *(f"{n:,}" for n in totals)])
    return lines


def _lines(table: str) -> list[list[str]]:
    rows = [
        line
        for line in table.splitlines()
        if line.startswith("| ") and not line.startswith(("| sink", "| ---"))
    ]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
