"""Times of messages: the broker's timestamps, or the least event time of each message's rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import SplitCounts
from windrow.ingest.ports.decoder import SCHEMA, Decoded, Refusal
from windrow.ingest.runner.message_times import LateBins, MessageTimes
from windrow.ingest.schema.dtypes import TIMESTAMP

EDGES = (10_000, 20_000, 25_000, 40_000)
"""Two earlier windows, and the window from 25 to 40 seconds after 1970."""

BY_STAMP = LateBins(EDGES, ("a", "b", "c"))
BY_EVENT = LateBins(EDGES, ("a", "b", "c"), "created_at")

micros = st.integers(-5_000_000, 60_000_000) | st.sampled_from(
    [edge * 1_000 + step for edge in EDGES for step in (-1, 0, 1)]
)
sent_messages = st.lists(
    st.tuples(
        st.none() | st.integers(-5_000, 60_000),
        st.lists(st.none() | micros, max_size=3),
        st.booleans(),
    ),
    max_size=12,
)
"""Messages: timestamp, event times of the rows, and whether the message is refused at first."""

Message = tuple[int | None, list[int | None], bool]


def instant(micros_of_epoch: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros_of_epoch)


def batch(sent: list[Message]) -> tuple[pa.RecordBatch, Decoded]:
    """Returns messages, and their rows; a message without rows is filtered."""
    stamps = pa.array([stamp for stamp, _, _ in sent], pa.timestamp("ms", "UTC"))
    rows = [(i, event) for i, (_, events, _) in enumerate(sent) for event in events]
    created_at = pa.array([event for _, event in rows], pa.int64()).cast(TIMESTAMP)
    none = pa.array([], pa.string())
    decoded = Decoded(
        pa.record_batch({"created_at": created_at}),
        pa.array([i for i, _ in rows], pa.int64()),
        pa.array([], pa.int64()),
        none,
        none,
        none,
        filtered=sum(not events for _, events, _ in sent),
    )
    return pa.record_batch({"timestamp": stamps}), decoded


def refused(sent: list[Message], decoded: Decoded) -> Decoded:
    index = decoded.row_index.to_numpy()
    is_refused = np.array([sent[i][2] for i in index], bool)
    return decoded.refused(SCHEMA, [Refusal(np.flatnonzero(is_refused), "r", "d")])


def expected_times(sent: list[Message]) -> list[tuple[int | None, int | None]]:
    """Returns each message's time and event time in milliseconds, by the definition."""
    pairs = []
    for stamp, events, _ in sent:
        event = min((e for e in events if e is not None), default=None)
        event = None if event is None else event // 1_000
        pairs.append((stamp if event is None else event, event))
    return pairs


def assert_figures(figures: SplitCounts, sent: list[Message], *, bounds: bool = True) -> None:
    """Asserts that counts are those of the definition; `bounds`: also least and greatest."""
    pairs = expected_times(sent)
    times = [time for time, _ in pairs if time is not None]
    late = [
        sum(low <= t < high for t in times) for low, high in ((-(10**9), 20_000), (20_000, 25_000))
    ]
    assert figures.late == sum(late)
    assert figures.late_by == tuple((k, n) for k, n in zip("ab", late, strict=True) if n)
    assert figures.early == sum(t >= EDGES[-1] for t in times)
    assert figures.stamped_late == sum(s is not None and s < 25_000 for s, _, _ in sent)
    inside = [event for _, event in pairs if event is not None and event < EDGES[-1]]
    assert figures.latest_event == (instant(max(inside) * 1_000) if inside else None)
    if bounds and times:
        assert (figures.min_timestamp, figures.max_timestamp) == (
            instant(min(times) * 1_000),
            instant(max(times) * 1_000),
        )


def counts_of(times: MessageTimes) -> SplitCounts:
    nothing = SplitCounts.of_nothing(Split("t", 0, 0, 9))
    return msgspec.structs.replace(nothing, **times.figures())


@given(sent_messages, st.integers(0, 12))
def test_each_message_counts_by_its_least_event_time(sent: list[Message], cut: int) -> None:
    """Late and early messages, the least and the greatest time are those of the definition.

    It doesn't matter how messages are cut into batches. A message without an event time counts by
    its timestamp. An event time after the window's end is never the latest event time.
    """
    times = MessageTimes(BY_EVENT)
    for part in (sent[:cut], sent[cut:]):
        times.add(*batch(part))
    assert_figures(counts_of(times), sent)


@given(sent_messages)
def test_a_dead_letter_counts_by_its_event_time_once_it_is_accepted(sent: list[Message]) -> None:
    """Refused messages count by their timestamps; a replay counts them by their event times.

    The counts are then those of a run that accepts them at once. The least and the greatest time
    keep the timestamps.
    """
    messages, decoded = batch(sent)
    first = MessageTimes(BY_EVENT)
    first.add(messages, refused(sent, decoded))
    assert_figures(counts_of(first), [(s, [] if r else e, r) for s, e, r in sent])
    dead = [message for message in sent if message[2] and message[1]]
    again = MessageTimes.from_counts(counts_of(first), BY_EVENT)
    again.recount_accepted(*batch(dead))
    assert_figures(counts_of(again), sent, bounds=False)


@given(sent_messages)
def test_without_an_event_time_the_timestamps_count(sent: list[Message]) -> None:
    """Without `window.event_time` rows don't matter, and no field of event times is filled."""
    times = MessageTimes(BY_STAMP)
    times.add(*batch(sent))
    counts = counts_of(times)
    assert (counts.late_stamps, counts.latest_event) == (None, None)
    assert_figures(counts, [(stamp, [], False) for stamp, _, _ in sent])
