"""The checker finds each kind of damage, and nothing in a correct table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
import pytest

from tests.sinks.with_dead_letters import MemoryBoth
from windrow.ingest.model.boundary import TopicPartition, TopicSeen
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Window
from windrow.ingest.model.receipt import Counts, Receipt
from windrow.ingest.ports.sink import Maintenance
from windrow.ingest.testing.checker import Report, check
from windrow.ingest.testing.contracts.windows import (
    PARTITIONS,
    ROWS,
    TOPIC,
    plan,
    plan_of,
    produced_messages,
    receipt,
    stage,
    staged_receipt,
    window,
)


class State:
    """The content of a table, which a test damages."""

    def __init__(self, numbers: range) -> None:
        sink = MemoryBoth("orders", ROWS)
        sink.prepare()
        for n in numbers:
            new_receipt, staged = staged_receipt(sink, n)
            sink.commit_dead(new_receipt.plan, "a1", staged)
            sink.commit(new_receipt, staged)
        self.sink, self.numbers = sink, numbers
        self.pieces = sink.pieces()
        self.receipts: list[Receipt] = [c.receipt for c in sink.receipts()]
        self.dead = [sink.read_dead(r.window) for r in self.receipts]

    def report(self) -> Report:
        """Returns the checker's report."""
        return check(
            produced_messages(self.numbers), self.pieces, self.dead, self.receipts, content="id"
        )


def drop_row(s: State) -> None:
    """Removes a row."""
    s.pieces[0] = s.pieces[0].slice(1)


def repeat_piece(s: State) -> None:
    """Adds a file's rows a second time."""
    s.pieces.append(s.pieces[0])


def row_and_dead_letter(s: State) -> None:
    """Adds a row of a message that is a dead letter."""
    s.pieces.append(_with(s.pieces[0].slice(3, 1), "_offset", 3, pa.int64()))


def unknown_offset(s: State) -> None:
    """Adds a row of a message that was never produced."""
    s.pieces.append(_with(s.pieces[0].slice(0, 1), "_offset", 999, pa.int64()))


def altered(s: State) -> None:
    """Changes the content of a row."""
    s.pieces[0] = pa.concat_tables(
        [_with(s.pieces[0].slice(0, 1), "id", "other", pa.string()), s.pieces[0].slice(1)]
    )


def swapped(s: State) -> None:
    """Swaps two rows of a file."""
    s.pieces[0] = pa.concat_tables(
        [s.pieces[0].slice(1, 1), s.pieces[0].slice(0, 1), s.pieces[0].slice(2)]
    )


def without_receipt(s: State) -> None:
    """Removes the receipt of existing rows."""
    s.receipts.pop()


def in_another_window(s: State) -> None:
    """Moves a row to the wrong window."""
    moved = _with(s.pieces[0].slice(0, 1), "_window", window(1).key, pa.string())
    s.pieces[0] = pa.concat_tables([moved, s.pieces[0].slice(1)])


def miscounted(s: State) -> None:
    """Changes a receipt so that it has read one message more than it accounts for."""
    first = s.receipts[0]
    splits = (
        msgspec.structs.replace(first.splits[0], read=first.splits[0].read + 1),
        *first.splits[1:],
    )
    s.receipts[0] = msgspec.structs.replace(first, splits=splits)


def untiled(s: State) -> None:
    """Moves the start of a window after the end of the one before."""
    skipped = plan(s.sink, 1, offsets=(11, 20))
    s.receipts[1] = msgspec.structs.replace(s.receipts[1], plan=skipped, digest=skipped.digest)


def overlapping(s: State) -> None:
    """Adds a receipt with offsets of another window."""
    s.receipts.append(receipt(plan(s.sink, 9, offsets=(5, 6)), [], 0, "a1"))


def skipped_in_silence(s: State) -> None:
    """Changes a receipt so that it has skipped offsets, but isn't partial."""
    s.receipts[0] = msgspec.structs.replace(_skipping(s.receipts[0]), partial=())


def skipped_twice(s: State) -> None:
    """Changes a receipt so that its total of skipped offsets isn't the sum over its splits."""
    skipping = _skipping(s.receipts[0])
    s.receipts[0] = msgspec.structs.replace(
        skipping, counts=msgspec.structs.replace(skipping.counts, skipped=8)
    )


def batch_missing(s: State) -> None:
    """Removes a micro-batch between two others."""
    first, second = s.receipts[:2]
    for i, (batch_receipt, number) in enumerate([(first, 0), (second, 2)]):
        numbered_window = Window("orders", number, number + 1)
        ends = [
            msgspec.structs.replace(b, label=n)
            for b, n in ((batch_receipt.plan.start, number), (batch_receipt.plan.stop, number + 1))
        ]
        numbered = msgspec.structs.replace(
            batch_receipt.plan, window=numbered_window, start=ends[0], stop=ends[1]
        )
        s.receipts[i] = msgspec.structs.replace(
            batch_receipt, plan=numbered, digest=numbered.digest
        )


def _skipping(original: Receipt) -> Receipt:
    """Returns the receipt of a window that has skipped four messages of its first split."""
    first = original.splits[0]
    less = msgspec.structs.replace(
        first,
        read=first.read - 4,
        valid=first.valid - 4,
        rows=first.rows - 4,
        rows_staged=first.rows_staged - 4,
        skipped=4,
    )
    splits = (less, *original.splits[1:])
    return msgspec.structs.replace(
        original, splits=splits, counts=Counts.total(splits), partial=("4 offsets were gone",)
    )


def test_skipped_offsets_are_accounted_for() -> None:
    """Skipped offsets are neither lost nor wrong if the receipt has them."""
    state = State(range(2))
    skipping = state.receipts[0] = _skipping(state.receipts[0])
    split = skipping.plan.splits[0]
    skipped = range(split.stop - 4, split.stop)
    state.pieces = [p.filter(_kept(p, split.tp, skipped)) for p in state.pieces]
    expected_ids = produced_messages(state.numbers)
    expected_ids[split.tp] = {
        o: identity for o, identity in expected_ids[split.tp].items() if o not in skipped
    }
    assert check(expected_ids, state.pieces, state.dead, state.receipts, content="id").ok


def _kept(piece: pa.Table, tp: TopicPartition, skipped: range) -> pa.Array:
    rows = zip(
        piece["_topic"].to_pylist(),
        piece["_partition"].to_pylist(),
        piece["_offset"].to_pylist(),
        strict=True,
    )
    return pa.array(
        [(t, p) != (tp.topic, tp.partition) or o not in skipped for t, p, o in rows], pa.bool_()
    )


def test_renamed_columns_are_found_under_their_names() -> None:
    """Metadata columns may have other names in the table; dead letters keep the default names."""
    state = State(range(2))
    names = {name: f"kafka_{name}" for name in DEFAULT}
    renamed = [
        p.rename_columns([f"kafka{n}" if n in DEFAULT.values() else n for n in p.column_names])
        for p in state.pieces
    ]
    assert check(
        produced_messages(state.numbers),
        renamed,
        state.dead,
        state.receipts,
        content="id",
        metadata=names,
    ).ok


def test_a_seam_is_no_tear() -> None:
    """After a rebase only topics with the same id must tile."""
    state = State(range(2))
    first, second = state.receipts
    moved = plan_of(
        state.sink, second.window, (3, 13), [TopicSeen(TOPIC.topic, "topic-id-2", PARTITIONS)]
    )
    counted = receipt(moved, stage(state.sink, moved, 0, "a1"), 0, "a1")
    report = check({}, [], [], [first, counted])
    assert report.accounting == ()
    torn = plan_of(state.sink, second.window, (3, 13))
    report = check({}, [], [], [first, receipt(torn, stage(state.sink, torn, 0, "a1"), 0, "a1")])
    assert "is not the start of the next" in str(report.accounting)


def several(*rows: tuple[int, int, str]) -> pa.Table:
    """Returns rows of one window with offset, ordinal and content."""
    offsets, ordinals, contents = zip(*rows, strict=True)
    return pa.table(
        {
            "_topic": [TOPIC.topic] * len(rows),
            "_partition": [0] * len(rows),
            "_offset": offsets,
            "n": ordinals,
            "_window": ["w"] * len(rows),
            "word": contents,
        }
    )


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([(0, 0, "a"), (0, 1, "b"), (1, 0, "c")], None),
        ([(0, 0, "a"), (1, 0, "c")], "missing"),
        ([(0, 1, "b"), (1, 0, "c")], "missing"),
        ([(0, 0, "a"), (0, 1, "b")], "missing"),
        ([(0, 0, "a"), (0, 1, "b"), (0, 1, "b"), (1, 0, "c")], "duplicated"),
        ([(0, 0, "a"), (0, 1, "b"), (0, 2, "x"), (1, 0, "c")], "invented"),
        ([(0, 0, "b"), (0, 1, "a"), (1, 0, "c")], "invented"),
    ],
)
def test_rows_of_one_message_are_told_apart_by_their_ordinal(
    rows: list[tuple[int, int, str]], kind: str | None
) -> None:
    """Rows of one message differ by their ordinal: a missing row is lost, and one too many is
    invented.
    """
    produced = {TopicPartition(TOPIC.topic, 0): {0: ("a", "b"), 1: ("c",)}}
    report = check(produced, [several(*rows)], [], [], "word", DEFAULT | {"ordinal": "n"})
    assert [
        name
        for name in ("missing", "duplicated", "invented", "out_of_order")
        if getattr(report, name)
    ] == ([kind] if kind else [])


@pytest.mark.parametrize("numbers", [range(0), range(1), range(3)])
def test_nothing_is_wrong(numbers: range) -> None:
    """A table with exactly the produced messages is ok, and the report says so."""
    report = State(numbers).report()
    assert report.ok, str(report)
    assert "nothing lost" in str(report)


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (drop_row, "missing"),
        (repeat_piece, "duplicated"),
        (row_and_dead_letter, "duplicated"),
        (unknown_offset, "invented"),
        (altered, "invented"),
        (swapped, "out_of_order"),
        (without_receipt, "receipts"),
        (in_another_window, "receipts"),
        (miscounted, "accounting"),
        (untiled, "accounting"),
        (overlapping, "accounting"),
        (skipped_in_silence, "accounting"),
        (skipped_twice, "accounting"),
        (batch_missing, "accounting"),
    ],
)
def test_each_damage_is_found(damage: Callable[[State], None], kind: str) -> None:
    """Each kind of damage is reported under its name and in the text."""
    state = State(range(2))
    damage(state)
    report = state.report()
    assert getattr(report, kind), str(report)
    assert not report.ok
    assert "nothing lost" not in str(report)


def expire_first(s: State) -> None:
    """Has the maintenance remove the rows of the first window for their age."""
    age = datetime.now(UTC) - window(0).end
    s.sink.maintain(Maintenance(timedelta(days=1), keep_rows=age))
    s.pieces, s.receipts = s.sink.pieces(), [c.receipt for c in s.sink.receipts()]


def rows_of_expired(s: State) -> None:
    """Keeps the rows of a window whose receipt says that they have expired."""
    pieces = s.pieces
    expire_first(s)
    s.pieces = pieces


def dead_letter_of_expired(s: State) -> None:
    """Removes the dead letters of a window whose rows have expired."""
    expire_first(s)
    s.dead[0] = s.dead[0].slice(0, 0)


def row_of_another_window(s: State) -> None:
    """Removes a row of a window beside one whose rows have expired."""
    expire_first(s)
    s.pieces[-1] = s.pieces[-1].slice(1)


def test_rows_that_expired_are_not_lost() -> None:
    """A window whose rows the maintenance removed has none, and keeps its dead letters."""
    state = State(range(2))
    expire_first(state)
    assert [r.expired_at is not None for r in state.receipts] == [True, False]
    assert state.report().ok, str(state.report())


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (rows_of_expired, "receipts"),
        (dead_letter_of_expired, "receipts"),
        (row_of_another_window, "missing"),
    ],
)
def test_damage_is_found_beside_rows_that_expired(
    damage: Callable[[State], None], kind: str
) -> None:
    """Rows that should have gone, lost dead letters, and lost rows of other windows are found."""
    state = State(range(2))
    damage(state)
    assert getattr(state.report(), kind), str(state.report())


def _with(piece: pa.Table, name: str, value: object, kind: pa.DataType) -> pa.Table:
    index = piece.schema.get_field_index(name)
    return piece.set_column(
        index, piece.schema.field(index), pa.array([value] * piece.num_rows, kind)
    )
