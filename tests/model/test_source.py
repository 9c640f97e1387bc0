"""The selection of a source, and positions as they are written on a command line."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from windrow.ingest.errors import SpecError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.source import (
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
    flink_offsets,
    moment,
    parse_initializer,
    selection_text,
    selects,
    to_given,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
THREE = datetime(2026, 1, 2, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("selection", "selected", "text"),
    [
        (Topics(("b", "c")), [B0], "b, c"),
        (Pattern("a|x.*"), [A0, A1], "topics matching a|x.*"),
        (Partitions((A1, B0)), [A1, B0], "a[1], b[0]"),
    ],
)
def test_a_selection(selection: Selection, selected: list[TopicPartition], text: str) -> None:
    """A selection has the right topic-partitions and text."""
    assert [tp for tp in (A0, A1, B0) if selects(selection, tp)] == selected
    assert selection_text(selection) == text


def test_a_pattern_matches_whole_names() -> None:
    """A pattern matches only whole names."""
    assert Pattern("orders").matches("orders")
    assert not Pattern("orders").matches("orders-2")
    assert not Pattern("orders").matches("my-orders")


def test_offsets_as_flink_writes_them() -> None:
    """Flink's form of offsets is read. Spaces and a final semicolon are ignored."""
    assert flink_offsets(" partition:0, offset:42 ;partition:10,offset:0; ") == {0: 42, 10: 0}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("partition:0,offset:42;0:1", "^part 2 is not of the form partition:0,offset:42$"),
        ("partition:0,offset:42X", "^part 1 is not"),
        ("", "^part 1 is not of the form"),
        ("partition:0,offset:-1", "^part 1 is not"),
        ("partition:0,offset:1;partition:00,offset:2", "^partition 0 is given twice$"),
    ],
)
def test_what_flink_would_not_write_is_refused(text: str, words: str) -> None:
    """Other forms of offsets raise ValueError with the number of the part, or the partition."""
    with pytest.raises(ValueError, match=words):
        flink_offsets(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Earliest()),
        (" latest ", Latest()),
        ("timestamp:2026-01-02T03:00:00Z", AtTime(THREE, "latest")),
        ("timestamp:1767322800000", AtTime(THREE, "latest")),
        ("timestamp:2026-01-02T03:00:00Z?fail", AtTime(THREE, "fail")),
        ("committed:g", GroupOffsets("g", "fail")),
        ("committed:g:x?earliest", GroupOffsets("g:x", "earliest")),
        ("partition:1,offset:3;partition:0,offset:5", Given(((A0, 5), (A1, 3)), "fail")),
        ("partition:0,offset:5?latest", Given(((A0, 5),), "latest")),
    ],
)
def test_a_position_on_a_command_line(text: str, expected: Initializer) -> None:
    """A position on a command line is read. The part after the question mark is the fallback."""
    assert parse_initializer(text, ["a"]) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is none of earliest, latest"),
        ("first", "it is none of earliest"),
        ("committed:", "it is none of earliest"),
        ("timestamp:yesterday", "is not an instant"),
        ("timestamp:2026-01-02T03:00:00", "has no time zone"),
        ("timestamp:99999999999999999999", "these epoch milliseconds lie outside the calendar"),
        ("timestamp:1767322800000?none", "write fail, earliest or latest after the \\?"),
        ("earliest?fail", "no \\? after earliest or latest themselves"),
        ("latest?earliest", "no \\? after earliest or latest themselves"),
        ("partition:0", "part 1 is not of the form"),
    ],
)
def test_what_is_no_position_says_why(text: str, words: str) -> None:
    """An invalid position raises SpecError that quotes it and refers to the help."""
    with pytest.raises(SpecError, match=words) as excinfo:
        parse_initializer(text, ["a"])
    assert excinfo.value.message.startswith(f"{text!r} is not a position: ")
    assert excinfo.value.stage == "spec"
    assert "windrow peek --help" in excinfo.value.advice


@pytest.mark.parametrize("topics", [[], ["a", "b"]])
def test_offsets_by_partition_alone_need_one_topic(topics: list[str]) -> None:
    """Offsets by partition alone need exactly one topic, because they would be ambiguous."""
    with pytest.raises(
        ValueError,
        match=r"^offsets by partition alone need exactly one topic: write them by topic$",
    ):
        to_given({0: 5}, topics)


def test_a_moment_is_an_instant_or_milliseconds() -> None:
    """A moment is an instant or milliseconds, and becomes an instant in UTC."""
    for text in ("2026-01-02T03:00:00Z", "1767322800000", " 1767322800000 "):
        assert (moment(text), moment(text).tzinfo) == (THREE, UTC)
    assert moment("1767322800500").microsecond == 500_000
    with pytest.raises(ValueError, match="is not an instant"):
        moment("-1")
