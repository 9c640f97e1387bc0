"""Resolving a label's boundary: the result is the definition's, for any neighbours, order and
log, and reads no more than needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.source.enumerator.logs import (
    FIRST,
    HOUR,
    LABELS,
    SOURCE,
    START,
    TOPIC,
    Event,
    ShortChunks,
    by_definition,
    logs,
    offset,
    resolve_alone,
    resolved,
    write,
)
from windrow.ingest.errors import DataLossError, IdentityError, OpenTransactionError
from windrow.ingest.model.boundary import Boundary, Mark, TopicPartition
from windrow.ingest.model.source import Given, Source, Topics
from windrow.ingest.ports.broker import OffsetAndEpoch
from windrow.ingest.source.enumerator.resolve import resolve
from windrow.ingest.testing.broker import MemoryBroker

TP = TopicPartition(TOPIC, 0)


@pytest.fixture(scope="module", autouse=True)
def far() -> Iterator[None]:
    """Limits a search to 25 messages, so that short logs also exceed the limit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("windrow.ingest.source.enumerator.timestamp_search.MOST_SCANNED", 25)
        yield


def broker_with(*partitions: list[Event]) -> tuple[ShortChunks, list[list[tuple[int, int]]]]:
    """Returns a broker with these logs, and the visible messages of each."""
    broker = ShortChunks()
    broker.create_topic(TOPIC, len(partitions))
    return broker, [
        write(broker, TopicPartition(TOPIC, i), events) for i, events in enumerate(partitions)
    ]


def offsets(boundary: Boundary) -> list[int]:
    """Returns the boundary's offsets by partition."""
    return [m.offset for m in boundary.marks]


@given(logs(), logs())
def test_a_label_cuts_where_the_definition_says(
    first_log: list[Event], second_log: list[Event]
) -> None:
    """A label cuts each partition at the settled visible message, or else at the last stable
    offset.
    """
    broker, visible = broker_with(first_log, second_log)
    ends = [p.offset for p in broker.stable_ends([TP, TopicPartition(TOPIC, 1)]).values()]
    for label in LABELS:
        expected = [by_definition(visible_in_log, label) for visible_in_log in visible]
        boundary = resolve_alone(broker, label)
        assert offsets(boundary) == [
            end if cut is None else cut for cut, end in zip(expected, ends, strict=True)
        ]
        assert [m.origin for m in boundary.marks] == [
            "end" if cut is None else "settled" for cut in expected
        ]


@given(logs(), logs(), st.permutations(LABELS))
def test_the_order_of_a_backfill_does_not_matter(
    first_log: list[Event], second_log: list[Event], order: list[datetime]
) -> None:
    """A label cuts at the same offset whichever neighbours are frozen, also if it is answered
    by another label's search.
    """
    broker, _ = broker_with(first_log, second_log)
    expected = {label: offsets(resolve_alone(broker, label)) for label in LABELS}
    frozen: dict[datetime, Boundary] = {}
    for label in order:
        lower = max(
            (b for frozen_label, b in frozen.items() if frozen_label < label),
            key=lambda b: b.label,
            default=None,
        )
        upper = min(
            (b for frozen_label, b in frozen.items() if frozen_label > label),
            key=lambda b: b.label,
            default=None,
        )
        for boundary in resolved(broker, label, lower, upper):
            frozen.setdefault(boundary.label, boundary)
    assert {frozen_label: offsets(b) for frozen_label, b in frozen.items()} == expected


def historic(messages: int) -> tuple[MemoryBroker, list[int]]:
    """Returns a broker with messages of the first day, and an empty list.

    Some are written by transactions today, whose markers have later timestamps than every
    label.
    """
    broker = MemoryBroker()
    broker.create_topic(TOPIC, 1)
    write(
        broker,
        TP,
        [
            (START + i * 24 * HOUR // messages, "committed" if i % 50 == 0 else "plain")
            for i in range(messages)
        ],
    )
    return broker, []


def test_a_historic_log_is_read_once_and_not_once_per_window() -> None:
    """One pass over a historic log answers all of its 24 labels when the last one is asked for."""
    broker, looked = historic(6_000)
    last = FIRST + timedelta(hours=23)
    boundaries = resolved(broker, last, progress=looked.append)
    assert [b.label for b in boundaries] == [FIRST + timedelta(hours=h) for h in range(24)]
    assert looked[-1] < 1.2 * 6_000  # 1,000 of them to find out that the log needs a full pass
    assert looked == sorted(looked)


def test_a_historic_log_lands_in_its_own_hours() -> None:
    """Markers with today's timestamp cut nothing: at least 95 % of the messages are in their
    own hour's window.
    """
    broker, _ = historic(6_000)
    boundaries = resolved(broker, FIRST + timedelta(hours=24))
    in_own_hour = 0
    for start, stop in pairwise(boundaries):
        low, high = (int(b.label.timestamp() * 1000) for b in (start, stop))
        inside = [
            s
            for chunk in broker.stamps(TP, start.marks[0].offset, stop.marks[0].offset)
            for s in chunk.timestamps.tolist()
        ]
        in_own_hour += sum(low <= s < high for s in inside)
    assert in_own_hour >= 0.95 * 6_000


def test_a_message_stamped_2099_empties_no_later_window() -> None:
    """A message with a timestamp in 2099 empties no later window, though Kafka's answer for
    every later label is that message.
    """
    far_future = START + 73 * 365 * 24 * HOUR
    broker, _ = broker_with(
        [(far_future if i == 5 else START + i * HOUR // 100, "plain") for i in range(900)]
    )
    cuts = [offset(resolve_alone(broker, label), TP) for label in LABELS]
    assert cuts == [100 * h for h in range(9)]


def test_a_healthy_partition_beside_a_sick_one_is_read_in_short_pieces() -> None:
    """A full pass for one partition leaps from label to label in healthy ones."""
    sick = [
        (START + 100 * HOUR if i == 0 else START + i * HOUR // 100, "plain") for i in range(800)
    ]
    well = [(START + i * HOUR // 1000, "plain") for i in range(8_000)]
    broker, _ = broker_with(sick, well)
    looked: list[int] = []
    boundaries = resolved(broker, LABELS[8], progress=looked.append)
    assert [offsets(b) for b in boundaries[1:-1]] == [[100 * h, 1000 * h] for h in range(1, 8)]
    assert looked[-1] < 2_500


def test_a_healthy_partition_costs_one_short_read() -> None:
    """A healthy partition costs Kafka's answer and one short read."""
    broker = MemoryBroker()
    broker.create_topic(TOPIC, 1)
    write(broker, TP, [(START + i * HOUR // 1000, "plain") for i in range(8_000)])
    looked: list[int] = []
    resolved(broker, LABELS[3], progress=looked.append)
    assert looked == [64]


def test_an_open_transaction_ends_the_look() -> None:
    """No label cuts after the last stable offset, although the log goes on."""
    broker, _ = broker_with([(START, "plain"), (START + 1, "plain")])
    broker.produce(TP, b"", timestamp=START + 2, transaction=broker.transaction())
    broker.produce(TP, b"", timestamp=START + HOUR)
    (mark,) = resolve_alone(broker, LABELS[1]).marks
    assert (mark.offset, mark.origin) == (2, "open")


def test_an_open_transaction_is_an_error_while_it_is_waited_for() -> None:
    """While an open transaction is waited for, a label that needs it raises an error with its
    offset.

    An earlier label doesn't.
    """
    broker, _ = broker_with([(START, "plain"), (START + HOUR, "plain")])
    transaction = broker.transaction()
    broker.produce(TP, b"", timestamp=START + HOUR, transaction=transaction)

    def waiting(label: datetime) -> Boundary:
        return resolve(
            broker, SOURCE, label, "hourly", FIRST, None, None, lambda _: None, wait_for_open=True
        )[-1]

    assert offsets(waiting(LABELS[1])) == [1]
    with pytest.raises(
        OpenTransactionError, match=r"open since offset 2, .* \(plan, things\[0\]@2\)\. .*max_wait"
    ):
        waiting(LABELS[2])
    transaction.commit()
    assert [(m.offset, m.origin) for m in waiting(LABELS[2]).marks] == [(4, "end")]


def test_without_isolation_an_open_transaction_holds_nothing_back() -> None:
    """With read_uncommitted the stable end is the high watermark, and an open transaction holds
    nothing back.
    """
    broker, _ = broker_with([(START, "plain")])
    broker.produce(TP, b"", timestamp=START + 2, transaction=broker.transaction())
    view = broker.with_isolation("read_uncommitted")
    (boundary,) = resolve(
        view, SOURCE, LABELS[1], "hourly", FIRST, None, None, lambda _: None, wait_for_open=True
    )
    assert [(m.offset, m.origin) for m in boundary.marks] == [(2, "end")]


@pytest.mark.parametrize(
    ("deleted_below", "cut", "origin"),
    [
        (150, 200, "settled"),
        (189, 200, "settled"),
        (190, 200, "log_start"),
        (200, 200, "log_start"),
        (250, 250, "log_start"),
        (300, 300, "log_start"),
    ],
)
def test_a_log_start_proves_nothing(deleted_below: int, cut: int, origin: str) -> None:
    """If old messages were deleted, a label's cut is proven only if eleven earlier messages are
    left.

    The log has 100 messages an hour, and those below `deleted_below` are gone.
    """
    broker, _ = broker_with([(START + i * HOUR // 100, "plain") for i in range(300)])
    broker.delete_records(TP, deleted_below)
    (mark,) = resolve_alone(broker, LABELS[2]).marks
    assert (mark.offset, mark.origin) == (cut, origin)


def test_a_proven_lower_neighbour_proves_a_cut_at_the_log_start() -> None:
    """A proven lower neighbour proves a cut at the log start, if all messages between both cuts
    are still there.

    Here there is no message between them.
    """
    broker, _ = broker_with(
        [(START + i * HOUR // 100, "plain") for i in (*range(100), *range(200, 300))]
    )
    lower = resolve_alone(broker, LABELS[1])
    broker.delete_records(TP, 100)
    for neighbour, origin in ((lower, "settled"), (None, "log_start")):
        (mark,) = resolve_alone(broker, LABELS[2], neighbour).marks
        assert (mark.offset, mark.origin) == (100, origin)


def test_a_log_that_lost_one_message_proves_nothing() -> None:
    """A log that lost one message proves nothing, because the message may have been the cut."""
    broker, _ = broker_with([(START + HOUR, "plain")] * 30)
    broker.delete_records(TP, 1)
    (mark,) = resolve_alone(broker, LABELS[1]).marks
    assert (mark.offset, mark.origin) == (1, "log_start")


def test_each_label_of_a_far_look_is_doubted_for_itself() -> None:
    """In a full pass over a log without its beginning, each label is doubted until the
    remaining messages prove its cut.
    """
    broker, _ = broker_with(
        [(START + (100 * HOUR if i == 300 else i * HOUR // 100), "plain") for i in range(800)]
    )
    broker.delete_records(TP, 250)
    marks = [b.marks[0] for b in resolved(broker, LABELS[5])]
    assert [(m.offset, m.origin) for m in marks] == [(250, "log_start")] * 3 + [
        (h * 100, "settled") for h in (3, 4, 5)
    ]


def test_what_is_left_of_a_log_is_not_read_to_doubt_it() -> None:
    """To doubt a cut only one chunk of the first messages is read, beside the chunk with the
    cut.
    """
    broker = MemoryBroker()
    broker.create_topic(TOPIC, 1)
    write(broker, TP, [(START + i * HOUR // 1000, "plain") for i in range(8_000)])
    broker.delete_records(TP, 1_500)
    looked: list[int] = []
    resolved(broker, LABELS[3], progress=looked.append)
    assert looked == [64, 128]


def upper_at(broker: MemoryBroker, offset: int) -> Boundary:
    """Returns a frozen boundary of a later label with this offset."""
    return replace(resolve_alone(broker, LABELS[3]), marks=(Mark(TOPIC, 0, offset, "settled", 0),))


def test_below_an_upper_neighbour_at_1_there_may_be_a_loss() -> None:
    """Below an upper neighbour at offset 1, the window's one message may be lost."""
    broker, _ = broker_with([(START + 2 * HOUR, "plain")] * 30)
    broker.delete_records(TP, 1)
    (mark,) = resolve_alone(broker, LABELS[2], None, upper_at(broker, 1)).marks
    assert (mark.offset, mark.origin) == (1, "log_start")


def test_below_an_upper_neighbour_at_0_nothing_can_be_lost() -> None:
    """Below an upper neighbour at offset 0 nothing can be lost, whatever the log has lost since."""
    broker, _ = broker_with([(START + 2 * HOUR, "plain")] * 30)
    upper = upper_at(broker, 0)
    broker.delete_records(TP, 10)
    (mark,) = resolve_alone(broker, LABELS[2], None, upper).marks
    assert (mark.offset, mark.origin) == (0, "clamped")


def test_what_is_clamped_has_the_upper_neighbours_witness() -> None:
    """A clamped mark has the upper neighbour's leader epoch, because the older epoch detects
    more than the end's.
    """
    broker, _ = broker_with([(START, "plain")] * 2)
    upper = resolve_alone(broker, LABELS[3])
    broker.elect(TP)
    write(broker, TP, [(START + 4 * HOUR, "plain")])
    (mark,) = resolve_alone(broker, LABELS[2], None, upper).marks
    assert (mark.offset, mark.origin, mark.leader_epoch) == (2, "clamped", 0)


def test_what_the_upper_boundary_does_not_know_is_not_read() -> None:
    """A topic that the upper boundary doesn't know has no mark: a later label reads it first."""
    broker, _ = broker_with([(START, "plain")])
    upper = resolve_alone(broker, LABELS[3])
    broker.create_topic("new")
    both = Source(Topics((TOPIC, "new")))
    assert [m.tp for m in resolve_alone(broker, LABELS[2], None, upper, both).marks] == [TP]
    assert [m.tp for m in resolve_alone(broker, LABELS[4], upper, None, both).marks] == [
        TopicPartition("new", 0),
        TP,
    ]


@pytest.mark.parametrize(
    ("start", "begin"),
    [(750, (700, "clamped")), (700, (700, "position")), (699, (699, "position"))],
)
def test_where_a_new_topic_begins_is_never_behind_its_cut(
    start: int, begin: tuple[int, str]
) -> None:
    """A new topic's start beyond the upper neighbour moves down with the cut.

    Any other start stays.
    """
    broker, _ = broker_with([(START, "plain")])
    new = TopicPartition("new", 0)
    lower = resolve_alone(broker, LABELS[5])
    broker.create_topic("new")
    write(broker, new, [(START + i * HOUR // 100, "plain") for i in range(800)])
    both = Source(Topics((TOPIC, "new")), Given(((new, start),)))
    upper = resolve_alone(broker, LABELS[7], None, None, Source(both.selection))
    (start_mark,) = resolve_alone(broker, LABELS[6], lower, upper, both).start_marks
    assert (start_mark.tp, start_mark.offset, start_mark.origin) == (new, *begin)


def test_an_idle_partition_is_not_suspected() -> None:
    """A log that ends at the lower neighbour's cut is whole: high watermarks are asked for once."""

    class Counting(ShortChunks):
        end_requests = 0

        def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            self.end_requests += 1
            return super().ends(tps)

    broker = Counting()
    broker.create_topic(TOPIC)
    write(broker, TP, [(START, "plain")])
    lower = resolve_alone(broker, LABELS[1])
    broker.end_requests = 0
    assert offsets(resolve_alone(broker, LABELS[2], lower)) == offsets(lower) == [1]
    assert broker.end_requests == 1


def test_a_cut_at_the_upper_neighbours_is_its_own() -> None:
    """A cut at the upper neighbour's offset, found from an earlier hit, is settled with its own
    message's epoch, not clamped.
    """
    broker, _ = broker_with([(START + 5 * HOUR, "plain"), *[(START, "plain")] * 20])
    broker.elect(TP)
    write(broker, TP, [(START + 3 * HOUR, "plain")] * 20)
    assert resolve_alone(broker, LABELS[2], None, upper_at(broker, 21)).marks == (
        Mark(TOPIC, 0, 21, "settled", 1),
    )
    assert resolve_alone(broker, LABELS[2], None, upper_at(broker, 20)).marks == (
        Mark(TOPIC, 0, 20, "clamped", 0),
    )


@pytest.mark.parametrize(("each_hour", "pass_over"), [(20, True), (21, False)])
def test_several_labels_are_one_pass_where_windows_are_small(
    monkeypatch: pytest.MonkeyPatch, each_hour: int, pass_over: bool
) -> None:
    """Several labels share one pass if there are up to MOST_SCANNED offsets per topic-partition
    and window on average.

    With more offsets each label is searched alone.
    """
    asked_instants: list[datetime] = []

    class Recording(MemoryBroker):
        def first_at_or_after(
            self, tps: Sequence[TopicPartition], moment: datetime
        ) -> dict[TopicPartition, OffsetAndEpoch | None]:
            asked_instants.append(moment)
            return super().first_at_or_after(tps, moment)

    broker = Recording()
    broker.create_topic(TOPIC, 2)
    for partition, messages in ((0, each_hour), (1, 0)):
        write(
            broker,
            TopicPartition(TOPIC, partition),
            [(START + i * HOUR // (messages or 1), "plain") for i in range(5 * messages)],
        )
    monkeypatch.setattr("windrow.ingest.source.enumerator.resolve.MOST_SCANNED", 10)
    monkeypatch.setattr("windrow.ingest.source.enumerator.timestamp_search.MOST_SCANNED", 1_000)
    boundaries = resolve(
        broker,
        SOURCE,
        LABELS[3],
        "hourly",
        FIRST,
        None,
        None,
        lambda _: None,
        wait_for_open=False,
        also=[LABELS[1], LABELS[2]],
    )
    assert [(b.label, *offsets(b)) for b in boundaries] == [
        (LABELS[h], h * each_hour, 0) for h in (1, 2, 3)
    ]
    assert (LABELS[2] in asked_instants) is not pass_over


def test_a_partition_that_the_upper_boundary_does_not_list_is_cut_at_0() -> None:
    """A partition that the upper boundary doesn't list is cut at 0, because a later window
    reads it whole.
    """
    broker, _ = broker_with([(START, "plain")])
    upper = resolve_alone(broker, LABELS[3])
    broker.add_partitions(TOPIC, 2)
    write(broker, TopicPartition(TOPIC, 1), [(START + HOUR, "plain")])
    assert offsets(resolve_alone(broker, LABELS[1], None, upper)) == [1, 0]
    assert len(resolve_alone(broker, LABELS[1]).marks) == 2


def test_messages_beyond_the_upper_neighbour_help_to_decide() -> None:
    """A cut right below a frozen neighbour uses the next twenty messages, also those after the
    neighbour.
    """
    hour_2, hour_3 = START + 2 * HOUR, START + 3 * HOUR
    stamps = [START] * 30 + [hour_2] + [START] * 8 + [hour_3] * 40
    broker, _ = broker_with([(stamp, "plain") for stamp in stamps])
    upper = resolve_alone(broker, LABELS[3])
    assert offsets(upper) == [39]
    assert (
        offsets(resolve_alone(broker, LABELS[2], None, upper))
        == offsets(resolve_alone(broker, LABELS[2]))
        == [30]
    )


def test_a_topic_made_anew_is_refused_before_anything_is_frozen() -> None:
    """A topic that was made again is refused before anything is frozen, because the old topic's
    offsets mean nothing in it.
    """
    broker, _ = broker_with([(START, "plain")])
    lower = resolve_alone(broker, LABELS[1])
    broker.recreate_topic(TOPIC)
    with pytest.raises(IdentityError, match="topic id"):
        resolve_alone(broker, LABELS[2], lower)


def test_the_boundary_names_cluster_topic_and_leader_epoch() -> None:
    """A boundary has the cluster's id, the topic's id, and the leader epoch of the settled
    message or the stable end.
    """
    broker, _ = broker_with([(START, "plain")])
    broker.elect(TP)
    boundary = resolve_alone(broker, LABELS[1])
    assert boundary.cluster_id == broker.cluster_id()
    assert [t.topic_id for t in boundary.topics] == [broker.topic(TOPIC).topic_id]
    assert (
        boundary.marks[0].leader_epoch,
        resolve_alone(broker, LABELS[0]).marks[0].leader_epoch,
    ) == (
        1,
        0,
    )


# --- a cluster that changes meanwhile


class Busy(ShortChunks):
    """A broker in which something happens right after the n-th answer about a log's ends."""

    def __init__(self, answers_before: int, act: Callable[[], object]) -> None:
        super().__init__()
        self.answers_left, self.act = answers_before, act

    def count_answer(self, response: Any) -> Any:
        """Counts an answer, and acts after the n-th."""
        self.answers_left -= 1
        if self.answers_left == 0:
            self.act()
        return response

    def log_starts(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Counts this answer; see `Broker.log_starts`."""
        return self.count_answer(super().log_starts(tps))

    def ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Counts this answer; see `Broker.ends`."""
        return self.count_answer(super().ends(tps))

    def stable_ends(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """Counts this answer; see `Broker.stable_ends`."""
        return self.count_answer(super().stable_ends(tps))


def mark_with_event(answers_before: int, act: Callable[[MemoryBroker], object]) -> Mark:
    """Returns the mark of a late label in a log of one message, in which `act` happens between
    two questions.
    """
    broker = Busy(answers_before, lambda: act(broker))
    broker.create_topic(TOPIC)
    write(broker, TP, [(START, "plain")])
    (mark,) = resolve_alone(broker, LABELS[8]).marks
    return mark


def test_log_starts_are_asked_before_ends() -> None:
    """Log starts are asked for before ends, so that a start is never above its end.

    1. The log start is asked for.
    2. Messages come, and all are deleted.
    3. The end is asked for.
    """

    def come_and_go(broker: MemoryBroker) -> None:
        write(broker, TP, [(START, "plain")] * 5)
        broker.delete_records(TP, 6)

    assert mark_with_event(1, come_and_go) == Mark(TOPIC, 0, 6, "end", 0)


def test_high_watermarks_are_asked_before_stable_ends() -> None:
    """High watermarks are asked for before stable ends, so that only a transaction makes the
    stable end lower.

    1. The high watermark is asked for.
    2. A message comes.
    3. The stable end is asked for.
    """
    assert mark_with_event(2, lambda broker: write(broker, TP, [(START, "plain")])) == Mark(
        TOPIC, 0, 2, "end", 0
    )


def test_what_is_clamped_at_an_open_end_is_not_waited_for() -> None:
    """A label below an upper neighbour that was frozen at an open end is clamped there, and
    doesn't wait for the transaction.
    """
    broker, _ = broker_with([(START, "plain")] * 2)
    broker.produce(TP, b"", timestamp=START, transaction=broker.transaction())
    upper = resolve_alone(broker, LABELS[3])
    assert [(m.offset, m.origin) for m in upper.marks] == [(2, "open")]
    boundaries = resolve(
        broker, SOURCE, LABELS[2], "hourly", FIRST, None, upper, lambda _: None, wait_for_open=True
    )
    assert [(m.offset, m.origin) for m in boundaries[-1].marks] == [(2, "clamped")]


def test_an_upper_neighbour_of_another_topic_is_refused() -> None:
    """An upper neighbour of another topic id is refused before the search, as a lower one is."""
    broker, _ = broker_with([(START, "plain")])
    upper = resolve_alone(broker, LABELS[3])
    broker.recreate_topic(TOPIC)
    with pytest.raises(IdentityError, match="topic id"):
        resolve_alone(broker, LABELS[2], None, upper)


def test_topics_that_are_left_out_are_not_asked_for() -> None:
    """Topics that a rebase of a later label has replaced aren't asked for."""
    broker, _ = broker_with([(START, "plain")])
    boundaries = resolve(
        broker,
        SOURCE,
        LABELS[2],
        "hourly",
        FIRST,
        None,
        None,
        lambda _: None,
        wait_for_open=True,
        replaced_topics={TOPIC},
    )
    assert [(b.topics, b.marks) for b in boundaries] == [((), ())]


def test_a_topic_that_was_removed_is_refused_or_let_go() -> None:
    """A removed topic that the lower neighbour knows is refused, or left out with on_removed:
    drop.
    """
    broker, _ = broker_with([(START, "plain")])
    lower = resolve_alone(broker, LABELS[1])
    broker.delete_topic(TOPIC)
    with pytest.raises(DataLossError, match=r"^Topic .+ is not in the cluster any more"):
        resolve_alone(broker, LABELS[2], lower)
    assert (
        resolve_alone(
            broker, LABELS[2], lower, source=Source(Topics((TOPIC,)), on_removed="drop")
        ).marks
        == ()
    )


def test_a_far_look_answers_the_labels_above_the_lower_neighbour() -> None:
    """A full pass answers only the labels above the lower neighbour.

    Labels below it are frozen or another run's.
    """
    broker, _ = broker_with(
        [(START + 100 * HOUR if i == 0 else START + i * HOUR // 100, "plain") for i in range(800)]
    )
    lower = resolve_alone(broker, LABELS[3])
    assert [b.label for b in resolved(broker, LABELS[6], lower)] == LABELS[4:7]
    assert [b.label for b in resolved(broker, LABELS[2])] == LABELS[:3]
