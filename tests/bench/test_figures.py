"""The evaluation of measured figures: ratios, spreads, growth, limits and the page."""

from __future__ import annotations

import gzip
import io
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bench.__main__ import PARTS, STEPS, WINDOWS, choose_parts
from tests.bench.committed import KINDS as COMMITTED
from tests.bench.harness.figures import (
    Growth,
    Measured,
    Point,
    PrintedResult,
    Result,
    Run,
    Spread,
    exponent,
    ratios,
)
from tests.bench.harness.limits import find_broken_limits
from tests.bench.harness.page import number, page
from tests.bench.harness.shapes import LOOKED_UP, SHAPES, flink_type, neutral_type, spark_type
from tests.bench.harness.side import FailedError, parquet_rows
from tests.bench.orders import values
from tests.bench.parts import customers
from tests.bench.parts.growth import KINDS
from tests.bench.parts.sides import COMPARISONS, LOOKUPS, SINK_COMPARISONS
from tests.bench.parts.targets import SINKS, Job, lines, looked_up, nowhere
from windrow.ingest.sinks.kinds import KINDS as KINDS_OF_SINKS

RUN = Run(1.0, 1.5, 1_000, {"Java": 700.0, "worker": 300.0}, 1_200.0)


def side(
    name: str, does: str, *seconds: float, failed: str = "", worker: float = 300.0
) -> Measured:
    """Returns a side with these seconds in its rounds, and three seconds in its first run."""
    peaks = {"Java": 700.0, "worker": worker}
    runs = tuple(msgspec.structs.replace(RUN, seconds=s, peaks=peaks) for s in seconds)
    return Measured(name, does, "1.0", 2.0, msgspec.structs.replace(RUN, seconds=3.0), runs, failed)


def result(part: str, *sides: Measured) -> Result:
    """Returns the result of a part with a thousand messages."""
    return Result(part, "2026-01-05", "abc", "a machine", 60.0, 1_000, 158, 4, sides)


def grown(*points: Point) -> Growth:
    """Returns a growth of rows with one size left out."""
    return Growth(
        "growth.rows", "2026-01-05", "abc", "a machine", 9.0, "More rows", points, (1_000,)
    )


def test_a_ratio_is_of_one_round() -> None:
    """A ratio compares runs of the same round, because the machine affects both.

    So it is the median of the ratios, not the ratio of the medians.
    """
    ours, peer = side("windrow", "all", 1.0, 10.0, 2.0), side("peer", "all", 2.0, 20.0, 8.0)
    assert ratios(ours, peer) == Spread(0.5, 0.25, 0.5)


def test_who_failed_has_no_ratio() -> None:
    """A side that failed has no ratio, even if it has earlier rounds."""
    ours, peer = (
        side("windrow", "all", 1.0),
        side("peer", "all", 2.0, failed="read 3 of 4 messages"),
    )
    assert ratios(ours, peer) is None
    assert ratios(peer, ours) is None
    assert ratios(ours, side("peer", "all")) is None


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [((1, 10, 100), 1.0), ((1, 1, 100), 2.0), ((5, 5, 5), 0.0), ((3,), 0.0)],
)
def test_the_steepest_step_counts(seconds: tuple[int, ...], expected: float) -> None:
    """A growth that is linear overall and quadratic at its end counts as quadratic."""
    points = [Point(10**i, s, s, 0.0) for i, s in enumerate(seconds)]
    assert exponent(points) == pytest.approx(expected)


def test_limits_are_held_against_medians() -> None:
    """A ratio above its limit, a worker above its memory, and a failed side are reported.

    The ratio is a median. Figures within the limits are not reported.
    """
    fine = (
        side("windrow", "all", 1.0, 9.0, 1.0),
        side("Spark's Kafka source", "from_json, Parquet", 4.0, 4.0, 4.0),
    )
    assert list(find_broken_limits(result("small.table", *fine))) == []
    slow = (
        side("windrow", "all", 2.0, 2.0),
        side("Spark's Kafka source", "from_json, Parquet", 4.0, 4.0),
    )
    message = (
        "small.table: 0.50 of the time of Spark's Kafka source, from_json, Parquet (limit 0.33)"
    )
    assert list(find_broken_limits(result("small.table", *slow))) == [message]
    assert list(find_broken_limits(result("wide.table", *slow))) == []
    costs = msgspec.structs.replace(RUN, cpu_seconds=1.8 * RUN.cpu_seconds)
    dear = msgspec.structs.replace(side("windrow", "lookup", 1.0, worker=501.0), runs=(costs,))
    without = side("windrow", "no lookup, Delta commit", 1.0, worker=199.0)
    assert list(find_broken_limits(result("lookup.table", dear, without))) == [
        "lookup.table: 1.80 of the CPU of no lookup, Delta commit (limit 1.75)",
        "lookup.table: a worker takes 101 MB more than no lookup, Delta commit (limit 100 MB)",
    ]
    big = side("windrow", "all", 1.0, worker=500.0)
    assert list(find_broken_limits(result("small.table", big))) == [
        "small.table: a worker took 500 MB (limit 400 MB)"
    ]
    assert list(
        find_broken_limits(result("large.raw", big, side("Daft", "all", failed="ended")))
    ) == ["large.raw: Daft, all failed: ended"]


def test_growth_is_at_most_linear() -> None:
    """A growth that is steeper than linear is reported, and a worker that grows with its window."""
    assert (
        list(
            find_broken_limits(
                grown(Point(1, 5.0, 0, 0), Point(10, 6.0, 0, 0), Point(100, 60.0, 0, 0))
            )
        )
        == []
    )
    assert list(find_broken_limits(grown(Point(1, 1.0, 0, 0), Point(10, 20.0, 0, 0)))) == [
        "growth.rows: grows as size to the power of 1.30 (limit 1.1)"
    ]
    fat = grown(Point(1_000_000, 1.0, 0, 100), Point(4_000_000, 4.0, 0, 120))
    assert list(find_broken_limits(fat)) == [
        "growth.rows: a worker takes 100 MB for 1,000,000 messages, and 120 MB for 4,000,000"
    ]


def test_a_page_has_every_result() -> None:
    """The page has medians with ranges, start-up times, failures, growths and steps' output."""
    compared = result(
        "small.table",
        side("windrow", "all", 1.0, 2.0),
        side("Spark", "all", 4.0, 4.0),
        side("Daft", "all", failed="ended"),
    )
    into = result(
        "sinks.delta",
        side("windrow", "into a Delta table", 2.0, 4.0),
        side("windrow", "decoding alone", 1.0, 1.0),
    )
    text = page(
        [compared],
        {"sinks.delta": into, "sinks.csv": None},
        [result("lookup.sql", side("windrow", "lookup", 2.0), side("Flink SQL", "lookup", 8.0))],
        [grown(Point(10, 1.0, 1.0, 5.0), Point(100, 5.0, 1.0, 5.0))],
        [PrintedResult("decode", "2026-01-05", "abc", "a machine", 3.0, ("a line",))],
    )
    lines = text.splitlines()
    assert (
        "| windrow 1.0 | all | 0.75 (0.50 to 1.00) | 0.11 | 1,500 | Java 700, worker 300 | 1,200 |"
        " 2.0 | +1.5 |  |" in lines
    )
    assert (
        "| Spark 1.0 | all | 0.25 (0.25 to 0.25) | 0.04 | 1,500 | Java 700, worker 300 | 1,200 |"
        " 2.0 | +0.0 | 0.38 (0.25 to 0.50) |" in lines
    )
    assert "| Daft 1.0 | all | failed: ended | | | | | | | |" in lines
    origin = "1,000 messages, 2 rounds, on 2026-01-05, of commit abc"
    costs = "1,500 | Java 700, worker 300 | 1,200"
    assert (
        f"| `sinks.delta` | windrow 1.0, into a Delta table | 0.38 (0.25 to 0.50) | {costs} |  |"
        f" {origin} |" in lines
    )
    assert (
        f"| `sinks.delta` | windrow 1.0, decoding alone | 1.00 (1.00 to 1.00) | {costs} | 3.00"
        f" (2.00 to 4.00) | {origin} |" in lines
    )
    assert "| `sinks.csv` | not measured yet | | | | | | |" in lines
    assert any(line.startswith("| windrow 1.0 | lookup |") for line in lines)
    assert any(line.endswith("| 0.25 (0.25 to 0.25) |") for line in lines)
    assert "| 100 | 5.00 | 1.00 | 5 |" in lines
    assert (
        "The steepest step grows as size to the power of 0.70. Left out, for the time that was"
        " given: 1,000." in lines
    )
    assert lines[-4:] == ["", "```text", "a line", "```"]
    assert "Measured on a machine." in lines
    assert "\nNothing is measured yet.\n" in page([], {}, [], [], [])


def test_numbers_keep_three_digits() -> None:
    """Numbers have three digits, so that a column is readable."""
    assert [number(v) for v in (0.256, 5.6789, 56.789, 567.89, 5678.9)] == [
        "0.26",
        "5.68",
        "56.8",
        "568",
        "5,679",
    ]


def test_results_survive_their_file() -> None:
    """A result is the same after it is written and read."""
    measured_result: Any = result("small.raw", side("windrow", "all", 1.0))
    assert msgspec.json.decode(msgspec.json.encode(measured_result), type=Result) == measured_result


def test_written_rows_are_counted_by_their_footers(tmp_path: Path) -> None:
    """Rows are counted by the footers of Parquet files, in any folder and with any suffix.

    Flink writes files without a suffix. Logs, checkpoints, checksums and markers don't count.
    """
    (tmp_path / "a" / "_delta_log").mkdir(parents=True)
    (tmp_path / "a" / "_window=1").mkdir()
    log = "a/_delta_log/7.checkpoint.parquet"
    for name in ("a/part.parquet", "part-1-file-0", "a/_window=1/part.parquet", log):
        pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / name)
    for name in ("_SUCCESS", ".part.crc", "state.db", "a/0.json"):
        (tmp_path / name).write_text("")
    assert parquet_rows(tmp_path) == 9


def test_types_are_told_in_peers_words() -> None:
    """The peers get the same column types in their own words, also nested ones."""
    nested = pl.List(pl.Struct({"a": pl.Int32, "b": pl.List(pl.String)}))
    assert spark_type(nested) == "array<struct<a: int, b: array<string>>>"
    assert flink_type(nested) == "ARRAY<ROW<`a` INT, `b` ARRAY<STRING>>>"
    assert neutral_type(nested) == {"list": {"struct": {"a": "int", "b": {"list": "string"}}}}


@pytest.mark.parametrize("sink", SINK_COMPARISONS)
def test_every_kind_of_sink_is_beside_decoding(sink: str) -> None:
    """A sink is compared with the same program without a sink.

    A peer is compared with the same kind of target.
    """
    ours, peer = SINK_COMPARISONS[sink]
    assert ours.name == "windrow"
    assert ours.into is not nowhere
    assert (peer.into is nowhere) == (sink in SINKS)


def test_lines_are_counted_without_heads(tmp_path: Path) -> None:
    """Lines of gzipped files are counted at any depth, without their headers.

    A log's lines don't count.
    """
    for name in ("a/1.csv.gz", "2.csv.gz", "_windrow/3.csv.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(b"head\nrow\nrow\n"))
    assert (lines(tmp_path, heads=1), lines(tmp_path)) == (4, 6)


def test_every_kind_of_sink_is_measured() -> None:
    """Each kind of sink is measured: its cost above decoding, and the cost of committed windows."""
    assert {name for name in KINDS_OF_SINKS if name != "files"} <= set(SINKS)
    assert {name for name in KINDS_OF_SINKS if name != "files"} <= set(COMMITTED)
    assert {"parquet", "jsonl", "csv"} <= set(SINKS)
    assert {f"windows.{name}" for name in (*COMMITTED, "ledger")} == set(WINDOWS)


@pytest.mark.parametrize("stage", COMPARISONS)
def test_every_side_can_be_told_every_job(stage: str) -> None:
    """Each side can be given each job, and windrow is the first side.

    The stops of the topic-partitions cover all messages.
    """
    for shape in SHAPES.values():
        job = Job("127.0.0.1:9", "t", shape, 10, Path("/nowhere"))
        assert job.stops == [3, 3, 2, 2]
        assert all(side.instructions(job) for side in COMPARISONS[stage])
    assert COMPARISONS[stage][0].name == "windrow"


@pytest.mark.parametrize("kind", LOOKUPS)
def test_lookups_are_beside_none(kind: str) -> None:
    """Each side with a lookup is checked against the table.

    The last side does the same without it.
    """
    job = Job("127.0.0.1:9", "t", LOOKED_UP, 10, Path("/nowhere"), "postgresql://me@h:1/d", "/c")
    *sides, last = LOOKUPS[kind]
    assert all(side.instructions(job) and side.into is looked_up for side in sides)
    assert "transform" not in last.instructions(job)


def test_other_answers_are_a_failure(tmp_path: Path) -> None:
    """A row with a missing or wrong answer raises FailedError, and missing rows are counted."""
    few = replace(LOOKED_UP, values=partial(values, 1_000))
    orders = pl.read_ndjson(io.BytesIO(b"\n".join(few.values())))
    number = pl.col("customer").str.strip_prefix("customer-").cast(pl.Int64)
    has_customer = number % 10 != 0
    rows = orders.with_columns(
        pl.when(has_customer).then(pl.format("tier-{}", number % 7)).alias("tier"),
        pl.when(has_customer).then(number * 7919 % 1_000_003).alias("credit"),
    )
    rows.write_parquet(tmp_path / "a.parquet")
    assert customers.right_rows(tmp_path, few, 1_000) == 1_000
    assert customers.right_rows(tmp_path, few, 1_001) == 1_000
    rows.with_columns(credit=pl.col("credit").shift()).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(FailedError, match="other answers"):
        customers.right_rows(tmp_path, few, 1_000)


def test_growing_windows_have_their_messages() -> None:
    """Each window of a growth has the same number of messages.

    The log continues after the last window. The messages of a size without windows are of one
    day.
    """
    windows = KINDS["windows"].grown_of(10)
    assert windows.every_ms * windows.messages == 11 * 60_000
    assert windows.rows == 1_000
    rows = KINDS["rows"].grown_of(200_000_000)
    assert rows.every_ms * rows.messages < 86_400_000
    assert replace(rows, messages=10).every_ms == 1.0


@pytest.mark.parametrize("step", [*STEPS, *(program for program, *_ in WINDOWS.values())])
def test_every_step_has_its_program(step: str) -> None:
    """Each step's part of the benchmark has a program of its name."""
    assert (Path(__file__).parent / f"{step}.py").is_file()


def test_parts_are_chosen_by_name_or_kind() -> None:
    """Without a word all parts are chosen. A word that names none ends the program."""
    assert choose_parts([]) == list(PARTS)
    assert choose_parts(["growth", "small.raw"]) == [
        "small.raw",
        "growth.partitions",
        "growth.windows",
        "growth.rows",
    ]
    with pytest.raises(SystemExit, match="No such part: smal"):
        choose_parts(["smal"])
