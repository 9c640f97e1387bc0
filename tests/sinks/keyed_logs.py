"""Random logs of rows and deletes, a table with a primary key, and the fold that computes its
rows.

The fold doesn't use tables. It reads all messages of the committed windows in the order of
windows, topic-partitions and offsets, and keeps a dict.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from windrow.ingest.admin.findings import Finding
from windrow.ingest.admin.verify_keyed import compare_merged
from windrow.ingest.crashpoints import CrashError
from windrow.ingest.errors import DamagedError, RefusedError, format_count
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Checksums, DeadReplay, Receipt, Staged
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.schema.row_changes import UNAVAILABLE, changes
from windrow.ingest.testing.contracts.windows import (
    PARTITIONS,
    PER_WINDOW,
    messages,
    plan,
    receipt,
    split_counts,
    window,
)

ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("shop", pa.string(), nullable=False),
        pa.field("amount", pa.int64(), nullable=False),
        pa.field("revision", pa.int32()),
        pa.field("tags", pa.map_(pa.string(), pa.int64())),
    ]
)
NARROW = pa.schema(
    [
        pa.field("id", pa.int16(), nullable=False),
        pa.field("shop", pa.string(), nullable=False),
        pa.field("amount", pa.int32(), nullable=False),
        pa.field("revision", pa.int8()),
        ROWS.field("tags"),
    ]
)
"""An older model of the same columns. The key and the version are narrower, too."""
KEY = ("shop", "id")
LOG_ORDER = [("_window", "ascending"), ("_partition", "ascending"), ("_offset", "ascending")]
"""The columns that sort rows as their messages are in the log."""

Key = tuple[str, int]


class Change(NamedTuple):
    """A message's change of a key.

    Attributes:
        key: the key.
        amount: amount of the row; None deletes the row.
        revision: version of the row.
        keeps_tags: True if the change leaves the row's tags unchanged.
    """

    key: Key
    amount: int | None
    revision: int | None = None
    keeps_tags: bool = False


Message = list[Change]
"""Changes of a message, deletes first. Empty for a message that is filtered out."""

Log = dict[int, list[list[Message]]]
"""Messages by window, partition and offset."""


class Row(NamedTuple):
    """The row that a table must hold for a key.

    Attributes:
        amount: amount of the row; None if it is marked as deleted.
        revision: version of the row.
        window: number of its window.
        partition: partition of its message.
        offset: offset of its message.
        tag: the number in its tags.
    """

    amount: int | None
    revision: int | None
    window: int
    partition: int
    offset: int
    tag: int | None


ALONE = -1
"""The tag of a row whose window doesn't change it."""


def place_changes(log: Log, number: int) -> list[tuple[Change, int, int]]:
    """Returns all changes of a window in order, each with its partition and offset."""
    return [
        (change, partition, number * PER_WINDOW + index)
        for partition, message_lists in enumerate(log[number])
        for index, message in enumerate(message_lists)
        for change in message
    ]


def last_changes(log: Log, number: int, versioned: bool) -> dict[Key, Row]:
    """Returns the last change of each key within a window."""
    row_by_key: dict[Key, Row] = {}
    for change, partition, offset in place_changes(log, number):
        tag = (
            change.amount
            if not change.keeps_tags
            else row_by_key[change.key].tag
            if change.key in row_by_key
            else ALONE
        )
        row = Row(change.amount, change.revision, number, partition, offset, tag)
        if (
            not versioned
            or change.key not in row_by_key
            or _revision(row) >= _revision(row_by_key[change.key])
        ):
            row_by_key[change.key] = row
    return row_by_key


def fold(committed: Mapping[int, dict[Key, Row]], marks: bool, versioned: bool) -> dict[Key, Row]:
    """Returns the last change of each key in a table, from the last changes of each window."""
    table: dict[Key, Row] = {}
    for number in sorted(committed):
        for key, row in committed[number].items():
            if not versioned or key not in table or _revision(row) >= _revision(table[key]):
                tag = table[key].tag if key in table else None
                table[key] = row._replace(tag=tag) if row.tag == ALONE else row
    return table if marks else {key: row for key, row in table.items() if row.amount is not None}


def _revision(row: Row) -> tuple[bool, int]:
    return (row.revision is not None, row.revision or 0)


def last_words(
    committed: Mapping[int, dict[Key, Row]], number: int, versioned: bool
) -> dict[Key, Row]:
    """Returns the keys whose last change is in this window."""
    if versioned:
        return {
            key: row for key, row in fold(committed, True, True).items() if row.window == number
        }
    later = {
        key for later_number, rows in committed.items() if later_number > number for key in rows
    }
    return {key: row for key, row in committed[number].items() if key not in later}


def count_unknown(
    committed: Mapping[int, dict[Key, Row]], number: int, new: Mapping[Key, Row], versioned: bool
) -> int:
    """Returns the number of keys whose earlier row is unknown when a window is replaced."""
    old_rows = last_words(committed, number, versioned)
    return sum(
        key not in new or (versioned and _revision(new[key]) < _revision(row))
        for key, row in old_rows.items()
    )


def random_log(
    dice: random.Random, windows: int, *, deletes: bool, keys: int = 6, unavailable_share: float = 0
) -> Log:
    """Returns a log with few keys, so that changes meet, and with unique amounts.

    Args:
        dice: the source of randomness.
        windows: number of windows.
        deletes: True if messages may delete.
        keys: number of keys.
        unavailable_share: share of rows that leave tags unchanged.
    """
    keys_of_log = [(shop, number) for shop in ("a", "b") for number in range(keys // 2)]
    amounts = iter(range(10**6))

    def message() -> Message:
        kind = dice.random()
        key = dice.choice(keys_of_log)
        row = Change(
            key, next(amounts), dice.choice([None, *range(4)]), dice.random() < unavailable_share
        )
        if kind < 0.25:
            return []
        if kind < 0.65 or not deletes:
            return (
                [row]
                if kind < 0.9
                else [row, row._replace(amount=next(amounts), key=dice.choice(keys_of_log))]
            )
        return (
            [Change(dice.choice(keys_of_log), None)]
            if kind < 0.9
            else [Change(dice.choice(keys_of_log), None), row]
        )

    length = dice.choice([1, 4, PER_WINDOW])
    return {
        n: [
            [message() if index < length else [] for index in range(PER_WINDOW)]
            for _ in range(PARTITIONS)
        ]
        for n in range(windows)
    }


def join_logs(log: Log, more: Log, number: int) -> Log:
    """Returns the log with more messages in one window, at offsets without changes."""
    return {
        **log,
        number: [
            [a or b for a, b in zip(*both, strict=True)]
            for both in zip(log[number], more[number], strict=True)
        ],
    }


def divide_log(dice: random.Random, log: Log, share: float) -> tuple[Log, Log]:
    """Returns the log divided in two: a random share of the messages, and the others, at their
    offsets.
    """
    parts: tuple[Log, Log] = ({}, {})
    for number, partitions in log.items():
        chosen = [[dice.random() < share for _ in messages] for messages in partitions]
        for part, is_chosen in zip(parts, (True, False), strict=True):
            part[number] = [
                [m if c is is_chosen else [] for m, c in zip(*both, strict=True)]
                for both in zip(partitions, chosen, strict=True)
            ]
    return parts


@dataclass
class Keyed:
    """A table with a primary key, its committed changes, and the rows that it must hold.

    Each kind of sink has a subclass.

    Attributes:
        uri: location of the table, in the subclass's form.
        key: the primary key.
        committed: last change of each key, by window number.
        generations: generation of each committed window.
        sink: the sink of the current process.
        attempts: number of attempts so far.
        rows: the model's columns.
    """

    uri: str
    key: PrimaryKey
    committed: dict[int, dict[Key, Row]] = field(default_factory=dict)
    generations: dict[int, int] = field(default_factory=dict)
    sink: Any = field(init=False)
    attempts: int = 0
    rows: pa.Schema = ROWS

    def __post_init__(self) -> None:
        self.reopen()
        self.sink.prepare()

    @property
    def versioned(self) -> bool:
        """True if versions decide which row of a key is kept."""
        return self.key.version is not None

    def reopen(self) -> None:
        """Replaces the sink by a new one, as in another process."""
        self.sink = self.make_sink()

    def make_sink(self) -> Any:
        """Returns a new sink."""
        raise NotImplementedError

    def read(self) -> list[dict[str, Any]]:
        """Returns all rows that readers see."""
        raise NotImplementedError

    def turn_to(self, rows: pa.Schema) -> None:
        """Replaces the sink by one with another model."""
        self.rows = rows
        self.reopen()

    def stage_window(
        self, log: Log, number: int, generation: int, sink: Any = None
    ) -> tuple[Any, list[Staged]]:
        """Stages a window, and returns its receipt and its staged splits."""
        self.attempts += 1
        attempt, target = f"a{self.attempts}", sink or self.sink
        planned = plan(target, number)
        factory = target.stager(planned, generation, attempt)
        staged = [
            _staged(factory(split), split, log[number][split.partition], target.schema)
            for split in planned.splits
        ]
        return receipt(planned, staged, generation, attempt), staged

    def commit(self, log: Log, number: int, *, replace: bool = False) -> None:
        """Runs a window to its end or to a crash, and notes the changes that the table must
        hold then.
        """
        new = last_changes(log, number, self.versioned)
        generation = (
            self.generations.get(number, -1) + 1 if replace and number in self.generations else 0
        )
        window_receipt, staged = self.stage_window(log, number, generation)
        is_repeated = number in self.generations and not generation
        open_keys = count_unknown(self.committed, number, new, self.versioned) if generation else 0
        self._commit(window_receipt, staged, new, open_keys, is_repeated=is_repeated)

    def replay_dead_letters(self, log: Log, accepted: Log, number: int) -> None:
        """Replays dead letters of a committed window: `accepted` messages join the log's at
        offsets without changes.
        """
        generation = self.generations[number] + 1
        free = [
            [[] if a else b for a, b in zip(*both, strict=True)]
            for both in zip(log[number], accepted[number], strict=True)
        ]
        window_receipt, staged = self.stage_window({number: free}, number, generation)
        replayed_attempt = self.sink.look(window(number)).receipt.attempt
        window_receipt = msgspec.structs.replace(
            window_receipt, dead_replay=DeadReplay(replayed_attempt, replayed_attempt, 1)
        )
        self._commit(
            window_receipt,
            staged,
            last_changes(join_logs(log, accepted, number), number, self.versioned),
            0,
            is_repeated=False,
        )

    def _commit(
        self,
        window_receipt: Receipt,
        staged: list[Staged],
        new: dict[Key, Row],
        open_keys: int,
        *,
        is_repeated: bool,
    ) -> None:
        number, generation = (
            next(n for n in range(100) if window(n) == window_receipt.window),
            window_receipt.generation,
        )
        refused = ""
        try:
            outcome = self.sink.commit(window_receipt, staged)
        except DamagedError:
            raise
        except RefusedError as error:
            refused = error.message
        finally:
            committed_window = self.make_sink().look(window(number))
            arrived = (
                committed_window is not None
                and committed_window.receipt.attempt == window_receipt.attempt
            )
            if arrived:
                self.committed[number], self.generations[number] = new, generation
        # windows that are run once, in order, are never refused for this reason
        if "left values as they were" in refused:
            assert generation or any(later_number > number for later_number in self.committed)
            return
        if refused or open_keys:
            assert f"the last change of {format_count(open_keys, 'key')}" in refused
            assert open_keys
            return
        assert isinstance(outcome, AlreadyDone if is_repeated else Done)
        assert arrived != is_repeated

    def crash(self, run: Callable[[], None]) -> None:
        """Runs a commit or a replay; a crash by WINDROW_CRASH reopens the table."""
        try:
            run()
        except CrashError:
            self.reopen()

    def expected_rows(self) -> dict[Key, Row]:
        """Returns the rows that the table must hold."""
        return fold(self.committed, self.key.marks, self.versioned)

    def held_rows(self) -> dict[Key, Row]:
        """Returns the rows that the table holds, and asserts that each key is there once."""
        rows = self.read()
        numbers = {window(n).key: n for n in range(100)}
        row_by_key = {
            (row["shop"], row["id"]): Row(
                row["amount"],
                row["revision"],
                numbers[row["_window"]],
                row["_partition"],
                row["_offset"],
                None if row["tags"] is None else dict(row["tags"])["n"],
            )
            for row in rows
        }
        assert len(row_by_key) == len(rows)
        assert all(row["_deleted"] is (row["amount"] is None) for row in rows if self.key.marks)
        return row_by_key

    def findings(self) -> list[Finding]:
        """Returns verification's findings about table and receipts."""
        audit = self.make_sink().audit()
        assert audit.keyed is not None
        return compare_merged(
            [c.receipt for c in self.make_sink().receipts()],
            audit,
            audit.keyed,
            deep=True,
            complete=True,
        )

    def find_mistakes(self) -> str:
        """Returns a text with each difference from the fold, and each finding of verification;
        "" if there are none.
        """
        held_rows, expected = self.held_rows(), self.expected_rows()
        unlike = {
            key: (held_rows.get(key), expected.get(key))
            for key in held_rows.keys() | expected.keys()
            if held_rows.get(key) != expected.get(key)
        }
        return "; ".join(
            [
                *(
                    f"{key}: {actual}, not {expected_row}"
                    for key, (actual, expected_row) in sorted(unlike.items())
                ),
                *(f.message for f in self.findings()),
            ]
        )


def _staged(
    stager: Any, split: Split, message_list: Sequence[Message], schema: pa.Schema
) -> Staged:
    """Stages one split in two batches."""
    all_messages = messages(split)
    rows = deletes = valid = 0
    for start in (0, PER_WINDOW // 2):
        part = message_list[start : start + PER_WINDOW // 2]
        kept_changes = [
            (index, change)
            for index, message in enumerate(part)
            for change in message
            if change.amount is not None
        ]
        deletes_in_part = [
            (index, change)
            for index, message in enumerate(part)
            for change in message
            if change.amount is None
        ]
        columns = [
            [c.key[1] for _, c in kept_changes],
            [c.key[0] for _, c in kept_changes],
            [c.amount for _, c in kept_changes],
            [c.revision for _, c in kept_changes],
            [None if c.keeps_tags else [("n", c.amount)] for _, c in kept_changes],
        ]
        keys = pa.record_batch(
            [
                pa.array([c.key[0] for _, c in deletes_in_part], pa.string()),
                pa.array([c.key[1] for _, c in deletes_in_part], schema.field("id").type),
            ],
            list(KEY),
        )
        changed, index = changes(
            pa.record_batch(
                [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
            ),
            pa.array([index for index, _ in kept_changes], pa.int64()),
            keys,
            pa.array([index for index, _ in deletes_in_part], pa.int64()),
            (
                pa.array([["tags"] * c.keeps_tags for _, c in kept_changes], UNAVAILABLE.type)
                if any(c.keeps_tags for _, c in kept_changes)
                else None
            ),
        )
        if changed.num_rows:
            stager.add(changed, all_messages.slice(start, PER_WINDOW // 2).take(index))
        rows, deletes, valid = (
            rows + len(kept_changes),
            deletes + len(deletes_in_part),
            valid + sum(map(bool, part)),
        )
    staging = stager.finish()
    n = split.stop - split.start
    counts = split_counts(
        split,
        read=n,
        bytes=n * 2,
        valid=valid,
        rows_staged=staging.rows,
        checksums=Checksums(rows=staging.checksum),
        rows=rows,
        filtered=n - valid,
        deletes=deletes,
    )
    return Staged(split, counts, staging.committables, ())
