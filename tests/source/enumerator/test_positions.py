"""Start positions: each becomes an offset that the log holds, or an error with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from windrow.ingest.errors import (
    DataLossError,
    OpenTransactionError,
    SpecError,
    WindrowError,
    see_runbook,
)
from windrow.ingest.model.boundary import Mark, TopicPartition
from windrow.ingest.model.source import (
    AtLabel,
    AtTime,
    Earliest,
    Given,
    GroupOffsets,
    Initializer,
    Latest,
    Reset,
    Source,
    Topics,
)
from windrow.ingest.ports.broker import OffsetAndEpoch
from windrow.ingest.source.enumerator.positions import (
    Positions,
    add_witness,
    joining_start,
    position_marks,
    positions,
)
from windrow.ingest.testing.broker import MemoryBroker

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def broker() -> MemoryBroker:
    """A broker: partition 0 holds the offsets 3 to 10, one message a minute from noon (offset
    0) on; partition 1 is empty.
    """
    broker = MemoryBroker()
    broker.create_topic("t", 2)
    for i in range(10):
        broker.produce(A, b"", timestamp=NOON + timedelta(minutes=i))
    broker.delete_records(A, 3)
    return broker


def resolve_positions(
    broker: MemoryBroker, start: Initializer, tps: Sequence[TopicPartition]
) -> Positions:
    """Returns the current positions in these topic-partitions."""
    return positions(broker, start, broker.stable_ends(tps))


def offsets(broker: MemoryBroker, start: Initializer) -> list[int]:
    """Returns the positions of the two partitions."""
    resolved_positions = resolve_positions(broker, start, [A, B])
    return [resolved_positions[A].offset, resolved_positions[B].offset]


def test_the_ends_of_the_log(broker: MemoryBroker) -> None:
    """Earliest is the log start, and latest the stable end."""
    assert (offsets(broker, Earliest()), offsets(broker, Latest())) == ([3, 0], [10, 0])


def test_the_end_goes_by_the_isolation_level(broker: MemoryBroker) -> None:
    """An open transaction holds back the end only with read_committed."""
    broker.produce(A, b"", transaction=broker.transaction())
    assert (
        offsets(broker, Latest()),
        offsets(broker.with_isolation("read_uncommitted"), Latest()),
    ) == (
        [10, 0],
        [11, 0],
    )


@pytest.mark.parametrize(
    ("minutes", "no_match", "expected"),
    [(5, "latest", [5, 0]), (-9, "earliest", [3, 0]), (30, "earliest", [3, 0])],
)
def test_an_instant(
    broker: MemoryBroker, minutes: int, no_match: Reset, expected: list[int]
) -> None:
    """A time gives Kafka's own answer, or the reset if there is none."""
    assert offsets(broker, AtTime(NOON + timedelta(minutes=minutes), no_match)) == expected


def test_a_group(broker: MemoryBroker) -> None:
    """A group gives its committed offset, or the reset if there is none or the log doesn't hold
    it.
    """
    broker.commit_group("g", {A: 6})
    assert offsets(broker, GroupOffsets("g", "latest")) == [6, 0]
    broker.commit_group("g", {A: 2, B: 4})
    assert offsets(broker, GroupOffsets("g", "earliest")) == [3, 0]


def test_given_offsets(broker: MemoryBroker) -> None:
    """Given offsets may be either end of the log, which is asked for once.

    Other topic-partitions use the reset.
    """
    broker.ends = None  # type: ignore[method-assign, assignment]
    assert offsets(broker, Given(((A, 10), (B, 0)))) == [10, 0]
    assert offsets(broker, Given(((A, 3),), "latest")) == [3, 0]


@pytest.mark.parametrize(
    ("start", "kind", "words"),
    [
        (
            AtTime(NOON, "fail"),
            SpecError,
            r"No message is stamped 2026-01-05T12:00:00Z or later .*t\[1\]\).*no_match",
        ),
        (GroupOffsets("none"), SpecError, r"Group none has committed nothing .*t\[0\]\).*reset"),
        (
            GroupOffsets("g"),
            SpecError,
            r"Group g has committed offset 2, and the log holds 3 to 10 .*t\[0\]\).*reset",
        ),
        (Given(((A, 5),)), SpecError, r"No offset is given for t\[1\] .*t\[1\]\).*others"),
        (
            Given(((A, 2),), "latest"),
            DataLossError,
            r"Offset 2 .* holds 3 to 10 .*t\[0\]@2\).*earliest",
        ),
        (
            Given(((A, 11),), "latest"),
            SpecError,
            r"Offset 11 .* holds 3 to 10 .*t\[0\]@11\).*latest",
        ),
    ],
)
def test_no_answer_is_an_error(
    broker: MemoryBroker, start: Initializer, kind: type[WindrowError], words: str
) -> None:
    """Without an answer the error names topic-partition, wanted position, existing offsets and
    the setting.
    """
    broker.commit_group("g", {A: 2, B: 0})
    with pytest.raises(kind, match=words):
        resolve_positions(broker, start, [A, B])


@pytest.mark.parametrize("start", [Given(((A, 11),), "latest"), GroupOffsets("g", "earliest")])
def test_a_position_behind_an_open_transaction_is_too_early(
    broker: MemoryBroker, start: Initializer
) -> None:
    """A position after an open transaction raises OpenTransactionError and doesn't use the
    reset, because it may become valid.
    """
    broker.produce(A, b"", transaction=broker.transaction())
    broker.commit_group("g", {A: 11})
    with pytest.raises(OpenTransactionError, match=r"open since offset 10"):
        resolve_positions(broker, start, [A, B])
    assert offsets(broker.with_isolation("read_uncommitted"), start) == [11, 0]


def test_a_position_that_is_not_decided_begins_at_the_stable_end(broker: MemoryBroker) -> None:
    """If Kafka's answer for a time is after an open transaction, the position is the stable
    end, so that no message is left out.
    """
    broker.produce(A, b"", timestamp=NOON, transaction=broker.transaction())
    late = broker.with_isolation("read_committed")
    late.first_at_or_after = lambda tps, _: dict.fromkeys(tps, OffsetAndEpoch(11, 7))  # type: ignore[method-assign]
    assert resolve_positions(late, AtTime(NOON), [A])[A].offset == 10
    late.first_at_or_after = lambda tps, _: dict.fromkeys(tps, OffsetAndEpoch(10, 7))  # type: ignore[method-assign]
    assert resolve_positions(late, AtTime(NOON), [A])[A] == OffsetAndEpoch(10, 7)


def test_what_a_group_committed_may_be_either_end_of_the_log(broker: MemoryBroker) -> None:
    """A group's offset may be the log's start or end.

    One before the start, or after the end, uses the reset.
    """
    for offset, expected in ((3, 3), (10, 10), (2, 10), (11, 10)):
        broker.commit_group("g", {A: offset})
        assert resolve_positions(broker, GroupOffsets("g", "latest"), [A])[A].offset == expected


def test_offsets_of_a_group_for_what_is_not_listed(broker: MemoryBroker) -> None:
    """Given offsets count for their topic-partitions, and the group's for others.

    Without a group offset it is an error, or the reset.
    """
    broker.commit_group("g", {A: 4})
    start = Given(((B, 0),), GroupOffsets("g"))
    resolved_positions = resolve_positions(broker, start, [A, B])
    assert {tp: resolved_positions[tp].offset for tp in (A, B)} == {A: 4, B: 0}
    with pytest.raises(
        SpecError, match=r"Group g has committed nothing \(plan, t\[1\]\)"
    ) as caught:
        resolve_positions(broker, Given(((A, 5),), GroupOffsets("g")), [A, B])
    assert caught.value.advice == no_answer("reset")
    latest = Source(Topics(("t",)), Given(((A, 5),), GroupOffsets("g", "latest")))
    assert joining_start(latest, Latest()) == Given(((A, 5),), GroupOffsets("g", "earliest"))


def test_what_is_not_answered_goes_where_it_was_told(broker: MemoryBroker) -> None:
    """The reset is the log's start or its end."""
    for reset, expected in (("earliest", 3), ("latest", 10)):
        assert resolve_positions(broker, GroupOffsets("none", reset), [A])[A].offset == expected  # type: ignore[arg-type]


def no_answer(option: str) -> str:
    """Returns the advice for a position without an answer, for a spec and for a command."""
    command = "Write ?earliest or ?latest behind a position on the command line"
    spec = f"of a spec's set source.start.{option} to earliest or latest"
    return f"{command}; {spec}. Or name another position."


@pytest.mark.parametrize(
    ("start", "expected_place", "advice"),
    [
        (GroupOffsets("none"), ("t", 0, None), no_answer("reset")),
        (AtTime(NOON, "fail"), ("t", 1, None), no_answer("no_match")),
        (Given(((A, 5),)), ("t", 1, None), no_answer("others")),
        (
            Given(((A, 2),), "latest"),
            ("t", 0, 2),
            "Retention has removed earlier messages: give 3, or start: earliest."
            + see_runbook("retention"),
        ),
        (
            Given(((A, 11),), "latest"),
            ("t", 0, 11),
            "Give an offset that the log holds, or start: latest.",
        ),
    ],
)
def test_a_refused_start_is_told_with_its_place(
    broker: MemoryBroker, start: Initializer, expected_place: tuple[object, ...], advice: str
) -> None:
    """A refused start has its topic-partition, its offset and the advice."""
    with pytest.raises(WindrowError) as caught:
        resolve_positions(broker, start, [A, B])
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == expected_place
    assert (caught.value.stage, caught.value.advice) == ("plan", advice)


def test_a_start_that_comes_too_early_is_told_with_its_place(broker: MemoryBroker) -> None:
    """A position after an open transaction is reported with the offset at which the transaction
    begins.
    """
    broker.produce(A, b"", transaction=broker.transaction())
    with pytest.raises(OpenTransactionError) as caught:
        resolve_positions(broker, Given(((A, 11),)), [A])
    assert (
        caught.value.stage,
        caught.value.topic,
        caught.value.partition,
        caught.value.offset,
    ) == (
        "plan",
        "t",
        0,
        10,
    )
    assert caught.value.advice == "Run it again when the transaction has ended."


def test_only_a_label_says_where_it_cuts(broker: MemoryBroker) -> None:
    """Asking for the position of a label is a bug.

    Without topic-partitions there are no positions.
    """
    with pytest.raises(AssertionError, match=r"^only a label says where it cuts the log$"):
        resolve_positions(broker, AtLabel(), [A])
    assert resolve_positions(broker, AtLabel(), []) == {}


def test_an_end_witnesses_what_it_does_not_lie_below() -> None:
    """The end's leader epoch is a witness of each offset up to the end, not beyond."""
    end = OffsetAndEpoch(10, 4)
    assert [add_witness(offset, end).leader_epoch for offset in (9, 10, 11)] == [4, 4, None]
    assert add_witness(9, end).offset == 9


def test_marks_of_positions() -> None:
    """Marks of positions have their leader epochs."""
    assert position_marks({A: OffsetAndEpoch(5, 2), B: OffsetAndEpoch(7, None)}) == [
        Mark("t", 0, 5, "position", 2),
        Mark("t", 1, 7, "position"),
    ]
