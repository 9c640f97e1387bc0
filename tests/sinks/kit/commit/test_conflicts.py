"""The judge that every sink uses.

In this order it finds a window that is committed already, accepts one that may be committed, or
refuses it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windrow.ingest.errors import GridError, OverlapError, OwnerError, RefusedError, WindrowError
from windrow.ingest.model.boundary import Boundary, Label, Mark, TopicSeen
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Committed, DeadReplay, Receipt
from windrow.ingest.sinks.kit.commit.conflicts import (
    TableView,
    decide,
    refuse_gap,
    refuse_overlap,
)
from windrow.ingest.testing.contracts.windows import (
    PER_WINDOW,
    ROWS,
    TOPIC,
    plan,
    plan_of,
    receipt,
    window,
    with_digest,
)
from windrow.ingest.testing.contracts.with_dead_letters import OWNER
from windrow.ingest.testing.sink import MemorySink

AT = datetime(2026, 1, 2, 3, tzinfo=UTC)


class Table:
    """A table with the name that plans need."""

    identity = "some:table"


def propose(
    number: int, generation: int = 0, offsets: tuple[int, int] | None = None, attempt: str = "a1"
) -> Receipt:
    """Returns a receipt of window `number`."""
    return receipt(plan(Table(), number, offsets), [], generation, attempt)  # type: ignore[arg-type]


def commit_proposed(
    number: int, generation: int = 0, offsets: tuple[int, int] | None = None
) -> Committed:
    """Returns a receipt of window `number` as the table holds it."""
    return Committed(propose(number, generation, offsets), 7)


def view_of(
    window_receipt: Receipt, *committed_windows: Committed, owner: TableOwner = OWNER
) -> TableView:
    """Returns a view of a table that holds these windows."""
    by_key = {committed.receipt.window.key: committed for committed in committed_windows}
    own_receipt, previous_receipt, next_receipt = (
        None if adjacent is None else by_key.get(adjacent.key)
        for adjacent in (window_receipt.window, *window_receipt.adjacent_windows)
    )
    others = [
        committed.receipt for key, committed in by_key.items() if key != window_receipt.window.key
    ]
    return TableView("t", owner, own_receipt, previous_receipt, next_receipt, others)


def error_position(error: WindrowError) -> tuple[str, str | None, int | None, int | None]:
    """Returns the stage and the position of an error."""
    return error.stage, error.topic, error.partition, error.offset


def test_an_empty_table_takes_a_window() -> None:
    """An empty table accepts any window."""
    assert decide(propose(0), view_of(propose(0))) is None


@pytest.mark.parametrize(("generation", "generation_there"), [(0, 0), (0, 1), (1, 1)])
def test_what_is_there_already_is_named(generation: int, generation_there: int) -> None:
    """A window that is there with the same or a later generation is returned as committed, with
    the table's receipt.
    """
    held_receipt = commit_proposed(0, generation_there)
    assert (
        decide(propose(0, generation, attempt="late"), view_of(propose(0), held_receipt))
        is held_receipt
    )


def test_the_next_generation_replaces() -> None:
    """The next generation of a window may be committed. Its own offsets are no overlap."""
    assert (
        decide(
            propose(1, 1),
            view_of(propose(1), commit_proposed(0), commit_proposed(1), commit_proposed(2)),
        )
        is None
    )


@pytest.mark.parametrize(
    ("generation", "committed_receipts", "words"),
    [
        (1, (), "generation 1 was to replace generation 0, but the table doesn't hold this window"),
        (2, (commit_proposed(0, 0),), "the table holds generation 0, so the next one is 1, not 2"),
        (5, (commit_proposed(0, 2),), "the table holds generation 2, so the next one is 3, not 5"),
    ],
)
def test_no_generation_is_left_out(
    generation: int, committed_receipts: tuple[Committed, ...], words: str
) -> None:
    """A replacement needs the generation before it. The error says which one is there."""
    proposal = propose(0, generation)
    with pytest.raises(RefusedError) as refused:
        decide(proposal, view_of(proposal, *committed_receipts))
    assert refused.value.message == f"window {proposal.window.key}: {words}"
    assert refused.value.stage == "commit"
    assert refused.value.advice


def test_a_dead_replay_is_of_the_attempt_that_the_table_holds() -> None:
    """A dead-letter replay must name the attempt that the table holds: the same generation
    doesn't prove the same attempt.
    """
    held_receipt = commit_proposed(0)
    right, wrong_replay = (
        replace(propose(0, 1), dead_replay=DeadReplay(replayed_attempt, "a1", 1))
        for replayed_attempt in ("a1", "a0")
    )
    assert decide(right, view_of(right, held_receipt)) is None
    with pytest.raises(RefusedError) as refused:
        decide(wrong_replay, view_of(wrong_replay, held_receipt))
    assert refused.value.message == (
        f"window {wrong_replay.window.key}: the dead letters to be replayed are of attempt a0, and"
        " the table holds a1"
    )
    assert refused.value.stage == "commit"
    assert "again" in refused.value.advice


@pytest.mark.parametrize("generation", [0, 1])
def test_another_plan_is_refused(generation: int) -> None:
    """A window that is committed with another plan is refused.

    The error names both digests, and the command that restores the plan.
    """
    held_receipt = commit_proposed(0)
    other_plan = with_digest(propose(0, generation), plan(Table(), 0, offsets=(0, 9)))  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="committed already") as refused:
        decide(other_plan, view_of(other_plan, held_receipt))
    assert refused.value.message.endswith(
        f"digest {held_receipt.receipt.digest[:12]} in the table, {other_plan.digest[:12]} here"
    )
    assert refused.value.stage == "commit"
    assert "--rebuild-ledger" in refused.value.advice


@pytest.mark.parametrize(
    ("offsets", "first", "stop"),
    [((9, 15), 9, 10), ((3, 7), 3, 7), ((0, 10), 0, 10), ((15, 21), 20, 21), ((15, 40), 20, 30)],
)
def test_an_overlap_is_refused(offsets: tuple[int, int], first: int, stop: int) -> None:
    """Offsets that another window holds are refused.

    The error names that window and the shared offsets.
    """
    proposal, committed_receipts = (
        propose(5, offsets=offsets),
        (commit_proposed(0), commit_proposed(2)),
    )
    with pytest.raises(OverlapError, match="already committed under window") as refused:
        decide(proposal, view_of(proposal, *committed_receipts))
    overlapped = committed_receipts[0] if first < 10 else committed_receipts[1]
    key, overlapped_key = proposal.window.key, overlapped.receipt.window.key
    assert (
        refused.value.message
        == f"offsets {first} to {stop} (exclusive) of window {key} are already committed under"
        f" window {overlapped_key}"
    )
    assert error_position(refused.value) == ("commit", TOPIC.topic, 0, first)
    assert "--rebuild-ledger" in refused.value.advice


def test_an_overlap_names_the_partition_that_is_shared() -> None:
    """An overlap error names the shared topic-partition, which need not be the plan's first."""
    proposal, overlapped = propose(5, offsets=(50, 60)), propose(0, offsets=(55, 58))
    overlapped = with_digest(
        overlapped, replace(overlapped.plan, splits=overlapped.plan.splits[1:])
    )
    with pytest.raises(OverlapError) as refused:
        decide(proposal, view_of(proposal, Committed(overlapped, 7)))
    assert error_position(refused.value) == ("commit", TOPIC.topic, 1, 55)


@pytest.mark.parametrize(
    ("offsets", "neighbour", "own_cut", "neighbour_cut"),
    [((11, 20), 0, 11, 10), ((10, 19), 2, 19, 20)],
)
def test_a_window_joins_on(
    offsets: tuple[int, int], neighbour: int, own_cut: int, neighbour_cut: int
) -> None:
    """A window must begin and end where the adjacent committed windows do, or offsets would be
    in no window.

    The error names the adjacent window, and both offsets.
    """
    proposal, neighbour_receipt = propose(1, offsets=offsets), commit_proposed(neighbour)
    with pytest.raises(OwnerError, match="two ledgers") as refused:
        decide(proposal, view_of(proposal, neighbour_receipt))
    cuts = (
        f"is cut at offset {own_cut} where the committed window"
        f" {neighbour_receipt.receipt.window.key} is cut at offset {neighbour_cut}"
    )
    assert refused.value.message.startswith(f"window {proposal.window.key} {cuts}: ")
    assert error_position(refused.value) == ("commit", TOPIC.topic, 0, own_cut)
    assert "--rebuild-ledger" in refused.value.advice


T, T_ANEW, U, U_ANEW = (
    TopicSeen("t", "1", 1),
    TopicSeen("t", "2", 1),
    TopicSeen("u", "1", 1),
    TopicSeen("u", "2", 1),
)


def join(
    stop: dict[TopicSeen, int], start: dict[TopicSeen, int], clusters: tuple[str, str] = ("c", "c")
) -> None:
    """Judges window 1, which begins at `start`, beside the committed window 0, which ends at
    `stop`; and the reverse.
    """
    ends = [
        Boundary.of(
            window(1).start,
            cluster,
            offset_by_topic,
            [
                Mark(topic_seen.topic, 0, offset, "settled")
                for topic_seen, offset in offset_by_topic.items()
            ],
        )
        for cluster, offset_by_topic in zip(clusters, (stop, start), strict=True)
    ]
    lower, upper = (
        with_digest(window_receipt, replace(window_receipt.plan, **{side: end}))
        for window_receipt, side, end in zip(
            (propose(0), propose(1)), ("stop", "start"), ends, strict=True
        )
    )
    refuse_gap(upper.plan, Committed(lower, 7), None)
    refuse_gap(lower.plan, None, Committed(upper, 7))


@pytest.mark.parametrize(
    ("stop", "start"),
    [
        ({T: 5, U: 7}, {T: 5, U: 7}),
        ({T: 5, U: 7}, {T: 5, U_ANEW: 0}),
        ({T: 5, U: 7}, {T: 5}),
        ({T: 5}, {T_ANEW: 0}),
        ({T: 5, U: 7}, {T: 5, U_ANEW: 7}),
    ],
)
def test_windows_join_on_after_a_rebase(
    stop: dict[TopicSeen, int], start: dict[TopicSeen, int]
) -> None:
    """After a rebase only topics that stayed must go on at the same offset: a topic with
    another id has other offsets.
    """
    join(stop, start)
    join({T: 5, U: 7}, {T: 6, U: 9}, ("c", "another cluster"))


@pytest.mark.parametrize(
    ("stop", "start", "topic", "own_cut", "neighbour_cut"),
    [
        ({T: 5, U: 7}, {T: 5, U: 8}, "u", "at offset 8", "at offset 7"),
        ({T: 5, U: 7}, {T: 6, U_ANEW: 0}, "t", "at offset 6", "at offset 5"),
        ({T: 5, U: 7}, {U: 8}, "u", "at offset 8", "at offset 7"),
        ({T: 5}, {T: 5, U: 8}, "u", "at offset 8", "nowhere"),
        ({T: 5, U: 7}, {T: 6, U: 9}, "t", "at offset 6", "at offset 5"),
    ],
)
def test_what_stayed_is_cut_alike(
    stop: dict[TopicSeen, int],
    start: dict[TopicSeen, int],
    topic: str,
    own_cut: str,
    neighbour_cut: str,
) -> None:
    """The first topic-partition with different offsets is named, also if one boundary doesn't
    have it.
    """
    with pytest.raises(
        OwnerError, match=f"is cut {own_cut} where the committed window .* is cut {neighbour_cut}: "
    ) as refused:
        join(stop, start)
    assert error_position(refused.value) == (
        "commit",
        topic,
        0,
        start[next(topic_seen for topic_seen in start if topic_seen.topic == topic)],
    )


def test_a_window_that_is_cut_nowhere_where_the_next_one_begins() -> None:
    """If the ending window has no offset for a topic-partition of the next window, the error
    names no offset.
    """
    first_receipt, next_receipt = propose(0), propose(1)
    stop = Boundary.of(window(1).start, "c", [T], [Mark("t", 0, 5, "settled")])
    start = Boundary.of(
        window(1).start, "c", [T, U], [Mark("t", 0, 5, "settled"), Mark("u", 0, 8, "settled")]
    )
    first_receipt, next_receipt = (
        with_digest(first_receipt, replace(first_receipt.plan, stop=stop)),
        with_digest(next_receipt, replace(next_receipt.plan, start=start)),
    )
    with pytest.raises(
        OwnerError, match=r"is cut nowhere where the committed window .* is cut at offset 8: "
    ) as refused:
        refuse_gap(first_receipt.plan, None, Committed(next_receipt, 7))
    assert error_position(refused.value) == ("commit", "u", 0, None)


def test_a_window_further_away_says_nothing() -> None:
    """Only adjacent windows are compared, because other windows may come between windows that
    aren't adjacent.
    """
    proposal = propose(3, offsets=(33, 40))
    assert decide(proposal, view_of(proposal, commit_proposed(0), commit_proposed(1))) is None


@pytest.mark.parametrize(
    ("bound", "error"),
    [
        (TableOwner("returns", "ledger-1", "hourly"), OwnerError),
        (TableOwner("orders", "ledger-2", "hourly"), OwnerError),
        (TableOwner("orders", "ledger-1", "daily"), GridError),
    ],
)
def test_another_binding_comes_first(bound: TableOwner, error: type[RefusedError]) -> None:
    """A table that is bound to another owner refuses each window, even a window that it holds."""
    for committed_receipts in ((), (commit_proposed(0),)):
        with pytest.raises(error, match="the table t "):
            decide(propose(0), view_of(propose(0), *committed_receipts, owner=bound))


@pytest.mark.parametrize(
    ("grid", "start", "end", "expected"),
    [
        ("hourly", AT, AT + timedelta(hours=1), ("2026-01-02T02:00:00Z", "2026-01-02T04:00:00Z")),
        (
            "0 0,3 * * *",
            AT,
            AT + timedelta(hours=21),
            ("2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"),
        ),
        ("batch", 0, 1, (None, "batch-000000001")),
        ("batch", 7, 8, ("batch-000000006", "batch-000000008")),
    ],
)
def test_the_windows_beside(
    grid: str, start: Label, end: Label, expected: tuple[str | None, str]
) -> None:
    """The grid gives the window before. The window after starts where this one ends."""
    planned = plan_of(MemorySink("m", ROWS), Window("orders", start, end), (0, 1))
    previous_window, next_window = receipt(planned, [], 0, "a", grid=grid).adjacent_windows
    assert (None if previous_window is None else previous_window.key, next_window.key) == expected
    assert {
        neighbour.pipeline for neighbour in (previous_window, next_window) if neighbour is not None
    } == {"orders"}


@given(
    st.tuples(st.integers(0, 40), st.integers(1, 20)),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=4),
)
def test_overlaps_are_refused_exactly_where_offsets_are_shared(
    own_range: tuple[int, int], others: list[tuple[int, int]]
) -> None:
    """A plan is refused exactly if one of its offsets is in another window's range."""
    sink = MemorySink("m", ROWS)
    planned = plan(sink, 0, offsets=(own_range[0], sum(own_range)))
    receipts = [
        receipt(plan(sink, n + 1, offsets=(low, low + size)), [], 0, "a")
        for n, (low, size) in enumerate(others)
    ]
    shared = any(
        set(range(own_range[0], sum(own_range))) & set(range(low, low + size))
        for low, size in others
    )
    if not shared:
        refuse_overlap(planned, receipts)
        return
    with pytest.raises(OverlapError) as refused:
        refuse_overlap(planned, receipts)
    assert refused.value.offset is not None
    assert own_range[0] <= refused.value.offset < sum(own_range)
    assert any(r.window.key in str(refused.value) for r in receipts)


def test_the_windows_own_receipt_is_no_overlap() -> None:
    """A replacement doesn't overlap with the receipt that it replaces.

    Offsets of another topic id are different offsets.
    """
    sink = MemorySink("m", ROWS)
    planned = plan(sink, 0)
    refuse_overlap(planned, [receipt(planned, [], 0, "a")])
    anew = replace(TOPIC, topic_id="made anew")
    refuse_overlap(
        plan_of(sink, window(1), (0, PER_WINDOW), [anew]), [receipt(planned, [], 0, "a")]
    )
    with pytest.raises(OverlapError):
        refuse_overlap(
            plan_of(sink, window(1), (0, PER_WINDOW), [TOPIC]), [receipt(planned, [], 0, "a")]
        )
    with pytest.raises(OverlapError):
        refuse_overlap(
            planned, [receipt(planned, [], 0, "a"), receipt(plan(sink, 1, (0, 1)), [], 0, "a")]
        )
