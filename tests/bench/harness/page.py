"""Makes docs/benchmark.md from results. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.bench.harness.figures import (
    Growth,
    Measured,
    PrintedResult,
    Result,
    Spread,
    exponent,
    ratios,
)

HEAD = """\
# Benchmark

This page is written by `make bench`; every figure on it is one that the command measured.
`tests/bench/README.md` says how, and how to measure a part of it again.

**What is compared.** A side is a program that reads a whole topic of four topic-partitions
and does something with it, with two tasks. All sides of a table read the same topic of the
same broker, which runs beside them on the same cores. They take turns: a round is one run
of each, one after the other, so that what else the machine does hits all of them; a side
that takes more than 30 seconds a run is in the first round alone.
Each run counts the messages that it has read, and the rows of the Parquet files that it
has written: a side that has fewer is shown as failed, never as fast.

**What the columns say.** Rows a second are the median over the rounds, with the least and
the most. CPU is that of all processes of a side, without the broker's. Memory is the peak
of the largest process of each kind since it began (resident), and what all of a side's
processes hold together (PSS, looked at once a second). Start-up is apart: *start* is from
nothing until the side can take its first job (Java, a session, a cluster in it), *first
run* how much longer its first run takes than the median of the later ones, on which all
other columns stand. librdkafka's program and kcat begin anew each time; the seconds of
the first are those that it prints itself, from the first message to the last, and it looks
at none of their bytes. *Ratio* is windrow's time
divided by the side's, of the same round: below 1 windrow is faster.
"""

TITLES = {
    "raw": "Reading alone",
    "decoded": "Reading and making columns",
    "table": "From Kafka to a table",
}
TITLES_OF_LOOKUPS = {
    "lookup.sql": "In PostgreSQL, beside Flink",
    "lookup.table": "In a Delta table",
}


def number(value: float) -> str:
    """Returns a number with three digits, and with commas between thousands."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values: Spread) -> str:
    """Returns a median and its range."""
    return f"{number(values.median)} ({number(values.lowest)} to {number(values.highest)})"


def comparison(result: Result) -> list[str]:
    """Returns the table of one comparison."""
    shape, stage = result.part.split(".")
    title = TITLES_OF_LOOKUPS.get(result.part) or f"{TITLES[stage]}, {shape} messages"
    size = f"{result.messages:,} messages of {result.message_bytes:,} bytes"
    lines = [
        f"### {title}",
        "",
        (
            f"{size} in {result.partitions} topic-partitions; {len(result.sides[0].runs)} rounds in"
            f" {result.took:.0f} s, {origin_of(result)}."
        ),
        "",
        (
            "| side | does | thousand rows/s | MB/s | CPU s per million rows | peak MB | together"
            " MB | start s | first run s | ratio |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    return [*lines, *(_row(result, side) for side in result.sides), ""]


def _row(result: Result, side: Measured) -> str:
    name = f"| {side.name} {side.version} | {side.does} "
    if side.failed or not side.runs or side.first is None:
        return f"{name}| failed: {side.failed} | | | | | | | |"
    seconds = Spread.of([run.seconds for run in side.runs])
    ratio = None if side is result.sides[0] else ratios(result.sides[0], side)
    first = max(side.first.seconds - seconds.median, 0.0)
    return (
        f"{name}| {_rate(side)} |"
        f" {number(result.messages * result.message_bytes / seconds.median / 1e6)} | {_cpu(side)} |"
        f" {_peaks(side)} | {_together(side)} | {side.ready:.1f} | +{first:.1f} |"
        f" {spread(ratio) if ratio else ''} |"
    )


def _rate(side: Measured) -> str:
    """Returns the thousand rows a second."""
    return spread(Spread.of([run.rows / run.seconds / 1e3 for run in side.runs]))


def _cpu(side: Measured) -> str:
    """Returns the CPU seconds for a million rows."""
    return number(Spread.of([run.cpu_seconds / run.rows * 1e6 for run in side.runs]).median)


def _peaks(side: Measured) -> str:
    """Returns the peak memory of one process, for each kind."""
    kinds = sorted({kind for run in side.runs for kind in run.peaks})
    return ", ".join(
        f"{kind} {number(max(run.peaks.get(kind, 0.0) for run in side.runs))}" for kind in kinds
    )


def _together(side: Measured) -> str:
    """Returns the peak memory of all processes together."""
    return number(max(run.together_mb for run in side.runs))


SINKS = """\
A small topic goes into each kind of sink, and beside it the same program goes as far as the
validated rows and stages nothing. *Ratio* is the sink's time divided by that of the side
it is beside, of the same round: what is above 1 is what the sink costs. PostgreSQL's server
and the broker are counted on no side. Rows in the sink are counted behind each run by a
reader that knows nothing of windrow. `kafka-flink` is beside another program: Flink's
exactly-once sink in batch mode, which commits its transactions once, at the end, so that
it pays for no checkpoint.
"""


def sink_costs(results: Mapping[str, Result | None]) -> list[str]:
    """Returns the table of all sinks. A part that isn't measured has a row that says so."""
    lines = [
        (
            "| part | side | thousand rows/s | CPU s per million rows | peak MB | together MB |"
            " ratio | measured |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for part, result in results.items():
        lines += (
            [f"| `{part}` | not measured yet | | | | | | |"]
            if result is None
            else [_cost(result, side) for side in result.sides]
        )
    return [*lines, ""]


def _cost(result: Result, side: Measured) -> str:
    name = f"| `{result.part}` | {side.name} {side.version}, {side.does} "
    if side.failed or not side.runs:
        return f"{name}| failed: {side.failed} | | | | | {origin_of(result)} |"
    ratio = None if side is result.sides[0] else ratios(result.sides[0], side)
    measured = f"{result.messages:,} messages, {len(side.runs)} rounds, {origin_of(result)}"
    return (
        f"{name}| {_rate(side)} | {_cpu(side)} | {_peaks(side)} | {_together(side)} |"
        f" {spread(ratio) if ratio else ''} | {measured} |"
    )


LOOKUPS = """\
Orders go from a topic to a table, and each gets two columns by its customer's name: of 100,000
names, most of which are in each topic-partition, nine of ten have a row. All sides look up
in the same table of the same server, which runs beside them and is counted on no side. Behind
each run the rows are held against what that table says, by a checksum over all of them: a side
that has found something else is shown as failed.
"""


def growth(result: Growth) -> list[str]:
    """Returns the table of one growth."""
    lines = [
        f"### {result.part.split('.')[1].capitalize()}",
        "",
        f"{result.what}; {result.took:.0f} s in all, {origin_of(result)}.",
        "",
        "| size | seconds | CPU seconds | a worker's peak MB |",
        "| ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {p.size:,} | {p.seconds:.2f} | {p.cpu_seconds:.2f} | {p.worker_mb:.0f} |"
        for p in result.points
    ]
    steepest = f"The steepest step grows as size to the power of {exponent(result.points):.2f}."
    left_out = (
        " Left out, for the time that was given:"
        f" {', '.join(f'{size:,}' for size in result.left_out)}."
        if result.left_out
        else ""
    )
    return [*lines, "", steepest + left_out, ""]


def origin_of(result: Result | Growth | PrintedResult) -> str:
    """Returns the date and the commit of a result."""
    return f"on {result.date}, of commit {result.commit}"


def page(
    results: Sequence[Result],
    sinks: Mapping[str, Result | None],
    lookups: Sequence[Result],
    growths: Sequence[Growth],
    steps: Sequence[PrintedResult],
) -> str:
    """Returns the whole page.

    Args:
        results: the comparisons with peers.
        sinks: the results of the sinks, by part; None: not measured.
        lookups: the comparisons of lookups.
        growths: the growths.
        steps: the outputs of single steps.
    """
    into = [result for result in sinks.values() if result]
    machines = sorted({r.machine for r in (*results, *into, *lookups, *growths, *steps)})
    lines = [
        HEAD,
        f"Measured on {'; and on '.join(machines)}." if machines else "Nothing is measured yet.",
        "",
    ]
    if results:
        lines += ["## Beside its peers", "", "![Rows a second of each side](benchmark.svg)", ""]
        lines += [line for result in results for line in comparison(result)]
    lines += ["## What each sink costs above decoding", "", SINKS]
    lines += (
        ["![Rows a second, and times as long](benchmark-sinks.svg)", ""]
        if any(ratios(*result.sides[:2]) for result in into)
        else []
    )
    lines += sink_costs(sinks)
    if lookups:
        lines += ["## Lookups", "", LOOKUPS]
        lines += [line for result in lookups for line in comparison(result)]
    if growths:
        lines += [
            "## What it costs as things grow",
            "",
            "![Seconds by size](benchmark-growth.svg)",
            "",
        ]
        lines += [line for result in growths for line in growth(result)]
    if steps:
        lines += ["## Single steps", ""]
    for step in steps:
        lines += [
            f"### `python -m tests.bench {step.part}`",
            "",
            f"{step.took:.0f} s, {origin_of(step)}.",
            "",
            "```text",
            *step.lines,
            "```",
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"
