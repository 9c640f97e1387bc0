"""The source of a spec: topics, positions and tuning, and the messages about mistakes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.source import (
    AtLabel,
    AtTime,
    Earliest,
    Given,
    GroupOffsets,
    Initializer,
    Latest,
    Partitions,
    Pattern,
    Selection,
    Topics,
)

TEXT = """\
id: orders
window: {WINDOW}
decode: {schema: "schema.py:Order"}
sink: {path: lake}
source:
  bootstrap_servers: localhost:9092
"""
HOURLY = "{grid: hourly, start: 2026-01-01T00:00:00Z}"
BATCH = "{grid: batch}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a pipeline, with its schema."""
    (tmp_path / "schema.py").write_text("")
    return tmp_path


def load(folder: Path, *lines: str, window: str = HOURLY) -> PipelineSpec:
    """Returns the spec with these lines as its source; the first one is line 7 of the file."""
    (folder / "defs.yaml").write_text(
        TEXT.replace("{WINDOW}", window) + "".join(f"  {line}\n" for line in lines)
    )
    return load_spec(folder / "defs.yaml")


def mistakes(folder: Path, *lines: str, window: str = HOURLY) -> list[str]:
    """Returns the mistakes in these lines, each as `line N: place: message`."""
    with pytest.raises(SpecError) as caught:
        load(folder, *lines, window=window)
    return [line.strip() for line in str(caught.value).splitlines() if line.startswith("  line ")]


@pytest.mark.parametrize(
    ("line", "selection", "names"),
    [
        ("topic: a", Topics(("a",)), ("a",)),
        ("topic: 7", Topics(("7",)), ("7",)),
        ("topic: [b, a]", Topics(("b", "a")), ("b", "a")),
        ("topic_pattern: 'shop\\.(orders|returns)'", Pattern("shop\\.(orders|returns)"), ()),
        (
            "partitions: {b: [1, 0], a: [2]}",
            Partitions((TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))),
            ("a", "b"),
        ),
    ],
)
def test_topics(folder: Path, line: str, selection: Selection, names: tuple[str, ...]) -> None:
    """A topic, several topics, a pattern or partitions select what is read."""
    source = load(folder, line).source
    assert (source.selection(), source.topic_names()) == (selection, names)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], ["line 5: source: Either 'topic', 'topic_pattern' or 'partitions' must be set"]),
        (
            ["topic: a/b", "topic_pattern: b", "partitions: {a: [0]}"],
            [
                "line 7: source.topic: must be a topic name",
                (
                    "line 8: source.topic_pattern: 'topic' and 'topic_pattern' must not be set"
                    " together"
                ),
                "line 9: source.partitions: 'topic' and 'partitions' must not be set together",
            ],
        ),
        (["topic: []"], ["line 7: source.topic: must name at least one topic"]),
        (["topic: bank.*"], ["line 7: source.topic: is a pattern: set topic_pattern, a regular"]),
        (["topic: [a, b, a]"], ["line 7: source.topic: names a twice"]),
        (["topic: [a, [b]]"], ["line 7: source.topic: must be a topic name, or a list of them"]),
        (
            ["topic_pattern: 'a**'"],
            [
                "line 7: source.topic_pattern: must be a regular expression, which the whole name"  # noqa: ISC004
                " has to match: multiple"
            ],
        ),
        (["partitions: {}"], ["line 7: source.partitions: must name at least one topic"]),
        (
            ["partitions:", "  a: [0, 0]", "  b: []", "  c: [-1, true]", "  d/e: [1]", "  f: 1"],
            [
                "line 8: source.partitions.a: names partition 0 twice",
                "line 9: source.partitions.b: must name at least one partition",
                "line 10: source.partitions.c.0: must be greater than or equal to 0, not -1",
                "line 10: source.partitions.c.1: must be a partition's number",
                "line 11: source.partitions.d/e: must be a topic name",
                "line 12: source.partitions.f: must be a list, not 1",
            ],
        ),
    ],
)
def test_wrong_topics(folder: Path, lines: list[str], expected: list[str]) -> None:
    """Topics are given in exactly one way, and all mistakes are reported with their lines."""
    messages = mistakes(folder, *lines)
    assert len(messages) == len(expected), messages
    assert [
        text for text, start in zip(messages, expected, strict=True) if not text.startswith(start)
    ] == []


FORTY_TWO = Given(((TopicPartition("a", 0), 42), (TopicPartition("a", 1), 300)))


@pytest.mark.parametrize(
    ("start", "position"),
    [
        ("label", AtLabel()),
        ("earliest", Earliest()),
        ("latest", Latest()),
        (
            "{timestamp: 2026-01-02T05:00:00+02:00}",
            AtTime(datetime(2026, 1, 2, 3, tzinfo=UTC), "latest"),
        ),
        (
            "{timestamp: 1767322800000, no_match: fail}",
            AtTime(datetime(2026, 1, 2, 3, tzinfo=UTC), "fail"),
        ),
        ("{timestamp: '1767322800000'}", AtTime(datetime(2026, 1, 2, 3, tzinfo=UTC), "latest")),
        ("{committed: old-job}", GroupOffsets("old-job", "fail")),
        ("{committed: old-job, reset: earliest}", GroupOffsets("old-job", "earliest")),
        ("{offsets: {0: 42, 1: 300}}", FORTY_TWO),
        ("{offsets: {a: {1: 300, 0: 42}}}", FORTY_TWO),
        ("{offsets: 'partition:0,offset:42;partition:1,offset:300'}", FORTY_TWO),
        ("{offsets: {0: 42}, others: latest}", Given(((TopicPartition("a", 0), 42),), "latest")),
    ],
)
def test_positions(folder: Path, start: str, position: Initializer) -> None:
    """Each position that Flink has can be written, with a rule for no answer."""
    assert (
        load(folder, "topic: a", f"start: {start}").source.for_planning("hourly").start == position
    )


def test_where_it_begins_unless_told(folder: Path) -> None:
    """Windows in time begin at their first label by default, and micro-batches at the
    log's start.
    """
    assert load(folder, "topic: a").source.for_planning("hourly").start == AtLabel()
    assert load(folder, "topic: a", window=BATCH).source.for_planning("batch").start == Earliest()
    assert (
        load(folder, "topic: a", "on_removed: drop").source.for_planning("hourly").on_removed
        == "drop"
    )


START = (
    "source.start: must be 'label', 'earliest' or 'latest', or a section with timestamp, committed,"
    " offsets"
)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (
            "somewhere",
            (
                "source.start: must be 'label', 'earliest' or 'latest', or a section with"
                " timestamp, committed, offsets, not 'somewhere'"
            ),
        ),
        ("[earliest]", "source.start: must be 'label', 'earliest' or 'latest'"),
        *(
            (written, f"{START}, not '{written}': is {meant} meant?")
            for written, meant in (
                ("earliest-offset", "earliest"),
                ("latest-offset", "latest"),
                ("group-offsets", "{committed: GROUP}"),
                ("specific-offsets", "{offsets: {0: 42}}"),
                ("2026-01-05T00:00:00Z", "{timestamp: 2026-01-05T00:00:00Z}"),
                ("1767322800000", "{timestamp: 1767322800000}"),
            )
        ),
        ("{}", "source.start: says no position"),
        (
            "{timestamp: 1, committed: g}",
            "source.start.committed: it is one position, and timestamp is there already",
        ),
        (
            "{committed: g, no_match: fail}",
            "source.start.no_match: belongs to timestamp, which isn't there",
        ),
        ("{committed: g, rset: fail}", "source.start.rset: unknown key; did you mean reset?"),
        (
            "{committed: g, reset: never}",
            "source.start.reset: must be 'fail', 'earliest' or 'latest', not 'never'",
        ),
        ("{timestamp: noon}", "source.start.timestamp: is not an instant: write it like"),
        ("{timestamp: true}", "source.start.timestamp: is not an instant: write it like"),
        ("{timestamp: 1969-12-31T23:59:59Z}", "source.start.timestamp: must not lie before 1970"),
        ("{timestamp: -1}", "source.start.timestamp: is not an instant: write it like"),
        ("{offsets: {}}", "source.start.offsets: must be offsets by topic and partition"),
        ("{offsets: {0: -1}}", "source.start.offsets: must be offsets by partition"),
        ("{offsets: {0: 1, 00: 2}}", "source.start.offsets: names a partition twice"),
        (
            "{offsets: {0: 9223372036854775808}}",
            "source.start.offsets: no partition or offset is that large",
        ),
        ("{offsets: {a: {0: 1}, 1: 2}}", "source.start.offsets.1: must be offsets by partition"),
        ("{offsets: 'partition:0;offset:1'}", "source.start.offsets: part 1 is not of the form"),
        (
            "{offsets: 'partition:0,offset:1;partition:0,offset:2'}",
            "source.start.offsets: partition 0 is given twice",
        ),
        (
            "{offsets: {b: {0: 1}}}",
            "source.start.offsets.b: topic b is not among those that are read",
        ),
    ],
)
def test_wrong_positions(folder: Path, start: str, expected: str) -> None:
    """An invalid position, or one of a topic that isn't read, is refused with its line."""
    (message,) = mistakes(folder, "topic: a", f"start: {start}")
    assert message.startswith(f"line 8: {expected}")


@pytest.mark.parametrize(
    ("topics", "offsets", "expected"),
    [
        (
            "topic: [a, b]",
            "{0: 1}",
            "source.start.offsets: offsets by partition alone need exactly one topic",
        ),
        (
            "topic_pattern: a",
            "{0: 1}",
            "source.start.offsets: offsets by partition alone need exactly one topic",
        ),
        (
            "topic_pattern: a+",
            "{aa: {0: 1}, ab: {0: 1}}",
            "source.start.offsets.ab: topic ab is not among",
        ),
        (
            "partitions: {a: [0]}",
            "{a: {0: 1, 3: 1}}",
            "source.start.offsets.a: partition 3 of a is not among",
        ),
        ("partitions: {a: [0]}", "{3: 1}", "source.start.offsets: partition 3 of a is not among"),
    ],
)
def test_offsets_of_what_is_not_read(
    folder: Path, topics: str, offsets: str, expected: str
) -> None:
    """Offsets of partitions that aren't read are refused, however the topics are selected."""
    (message,) = mistakes(folder, topics, f"start: {{offsets: {offsets}}}")
    assert message.startswith(f"line 8: {expected}")


def test_a_batch_has_no_label_in_time(folder: Path) -> None:
    """The position `label` is refused for micro-batches."""
    assert mistakes(folder, "topic: a", "start: label", window=BATCH) == [
        "line 8: source.start: label is for windows in time: a micro-batch's label is a number,"  # noqa: ISC004
        " which cuts no log"
    ]


def test_none_is_written_out(folder: Path) -> None:
    """`none` is a valid value of settings that may be absent."""
    source = load(folder, "topic: a", "split_records: none", "offsets_group: none").source
    assert (source.split_records, source.offsets_group) == (None, None)
    assert load(folder, "topic: a", "split_records: 5").source.split_records == 5
    assert mistakes(folder, "topic: a", "split_records: 0")


def test_tuning_reaches_the_reader(folder: Path) -> None:
    """Sizes become bytes, and durations seconds; other settings keep the reader's defaults."""
    assert load(folder, "topic: a").source.tuning.reader() == {}
    tuning = load(
        folder, "topic: a", "tuning: {batch_messages: 7, batch_bytes: 1MiB, stall_timeout: 1500ms}"
    ).source.tuning
    assert tuning.reader() == {"rows_max": 7, "bytes_max": 1024**2, "stall_seconds": 1.5}


def test_wrong_tuning(folder: Path) -> None:
    """All mistakes in tuning are reported, each with its line."""
    lines = ["topic: a", "tuning:", "  batch_bytes: 16MB", "  stall_timeout: 0", "  batch_byte: 1"]
    assert mistakes(folder, *lines, "  batch_messages: true") == [
        (
            "line 9: source.tuning.batch_bytes: must be a number of bytes, or a size like"
            " 512KiB, 16MiB or 1GiB, not '16MB'"
        ),
        "line 10: source.tuning.stall_timeout: must be more than 0, not 0",
        "line 11: source.tuning.batch_byte: unknown key; did you mean batch_bytes?",
        "line 12: source.tuning.batch_messages: must be a whole number, not True",
    ]


def test_what_a_client_fetches_ahead_is_no_tuning(folder: Path) -> None:
    """A mistake in tuning names the client property that may be meant."""
    lines = ["topic: a", "tuning:", "  fetch_min_bytes: 1MiB", "  queue_messages: 7"]
    assert mistakes(folder, *lines) == [
        (
            "line 9: source.tuning.fetch_min_bytes: unknown key; did you mean fetch.min.bytes"
            " under client?"
        ),
        (
            "line 10: source.tuning.queue_messages: unknown key; did you mean queued.min.messages"
            " under client?"
        ),
    ]
