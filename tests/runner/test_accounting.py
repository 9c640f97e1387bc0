"""Counts of independent parts must agree, and a window with too many dead letters is refused
with advice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.sinks.with_dead_letters import DeltaSink
from windrow.ingest.admin.chosen_dead_letters import refused_attempts
from windrow.ingest.config.limits import LimitsSpec, is_beyond_share
from windrow.ingest.config.load import parse_spec
from windrow.ingest.errors import (
    AccountingError,
    DataLossError,
    DeadLetterLimitError,
    RefusedError,
    format_count,
)
from windrow.ingest.formats.json.decoder import JsonEncoding
from windrow.ingest.formats.row_decoder import RowDecoder
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.model.boundary import Boundary, TopicPartition
from windrow.ingest.model.plan import Plan, Split, Window
from windrow.ingest.model.receipt import Counts, DeadReplay, Receipt, SplitCounts, Staged
from windrow.ingest.model.refusal_summary import OTHERS, Refusals, RefusedAt, in_words
from windrow.ingest.ports.decoder import Decoded, Deletes
from windrow.ingest.ports.reader import Reader, ReadPlan, ReadSummary, Take
from windrow.ingest.ports.sink import Stager
from windrow.ingest.runner.accounting import (
    find_unexplained,
    refuse_fewer,
    refuse_too_many_dead,
    refuse_undoing,
    refuse_unequal,
    refuse_unplaced,
)
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference, load_model
from windrow.ingest.sinks.kind import delta_dead_letters
from windrow.ingest.testing.broker import MemoryBroker
from windrow.ingest.testing.contracts.values import messages_with
from windrow.ingest.testing.contracts.with_dead_letters import read_dead
from windrow.ingest.testing.engine import LocalEngine
from windrow.ingest.testing.reader import MemoryReader
from windrow.ingest.transform.validate import Validate

START = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = Window("things", START, START + timedelta(hours=1))
PAYMENTS = TopicPartition("bank.payments", 0)
SCHEMA = """\
import pandera.polars as pa
import polars as pl


class Payment(pa.DataFrameModel):
    amount: pl.Int64
"""


def plan(*splits: Split) -> Plan:
    """Returns a plan of these splits."""
    return Plan(
        HOUR, Boundary(HOUR.start, "c", (), ()), Boundary(HOUR.end, "c", (), ()), splits, "memory:x"
    )


def counts(split: Split, **over: Any) -> SplitCounts:
    """Returns the correct counts of a split with ten visible messages, changed by `over`.

    Two are dead, one is dropped, one filtered, and six have 7 rows.
    """
    right = SplitCounts(
        split.topic,
        split.partition,
        split.start,
        split.stop,
        next_offset=split.stop,
        read=10,
        bytes=20,
        valid=6,
        dead=2,
        dropped=1,
        rows_staged=7,
        dead_staged=2,
        aborted=0,
        rows=7,
        filtered=1,
    )
    return msgspec.structs.replace(right, **over)


def make_staged(*counted: SplitCounts, **over: Any) -> list[Staged]:
    """Returns the results of tasks with these counts."""
    return [
        Staged(Split(c.topic, c.partition, c.start, c.stop), c, (), (), **over) for c in counted
    ]


SPLIT = Split("shop.things", 1, 100, 110)


# --- equal counts


def test_counts_that_agree_are_no_complaint() -> None:
    """A split whose counts agree passes, also with transaction markers and with skipped offsets."""
    longer, keyed = Split("shop.things", 2, 0, 15), Split("shop.things", 3, 0, 10)
    deleting = counts(keyed, rows=1, deletes=5, rows_staged=6)
    refuse_unequal(
        plan(SPLIT, longer, keyed), make_staged(counts(SPLIT), counts(longer, skipped=2), deleting)
    )


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"read": 9}, "read 9 is not valid 6 + dead 2 + dropped 1 + filtered 1"),
        ({"valid": 5}, "read 10 is not valid 5 + dead 2 + dropped 1 + filtered 1"),
        ({"dropped": 0}, "read 10 is not valid 6 + dead 2 + dropped 0 + filtered 1"),
        ({"filtered": 2}, "read 10 is not valid 6 + dead 2 + dropped 1 + filtered 2"),
        ({"rows": 8}, "7 rows staged of 8 that 6 valid messages became"),
        ({"rows_staged": 6}, "6 rows staged of 7 that 6 valid messages became"),
        ({"rows_staged": 8}, "8 rows staged of 7 that 6 valid messages became"),
        (
            {"valid": 8, "dropped": 0, "filtered": 0},
            "8 valid messages became fewer rows than one each: 7",
        ),
        (
            {"rows": 4, "deletes": 2},
            "7 rows staged of 4 + 2 deleted that 6 valid messages became",
        ),
        (
            {"rows": 2, "deletes": 3, "rows_staged": 5},
            "6 valid messages became fewer rows than one each: 2 + 3 deleted",
        ),
        ({"dead": 1, "dropped": 2}, "2 dead letters staged for 1 refused message"),
        ({"dead_staged": 3}, "3 dead letters staged for 2 refused messages"),
        ({"dead_staged": 1}, "1 dead letter staged for 2 refused messages"),
        ({"next_offset": 109}, "the reader ended at 109, before the stop 110"),
        ({"skipped": 1}, "10 messages read and 1 offset skipped of 10"),
    ],
)
def test_each_counter_is_held_against_another(over: dict[str, int], says: str) -> None:
    """One count that disagrees refuses the window. The error names the count and the split."""
    with pytest.raises(AccountingError) as refused:
        refuse_unequal(plan(SPLIT), make_staged(counts(SPLIT, **over)))
    assert says in refused.value.message
    assert ";" not in refused.value.message  # no other count is wrong
    assert (refused.value.topic, refused.value.partition, refused.value.offset) == (
        "shop.things",
        1,
        100,
    )


@pytest.mark.parametrize("brought", [[], [SPLIT, SPLIT], [Split("shop.things", 1, 100, 111)]])
def test_results_are_those_of_the_plans_splits(brought: list[Split]) -> None:
    """A result that is missing, there twice, or of another split refuses the window."""
    with pytest.raises(AccountingError, match=r"not those of the plan's 1 split\b"):
        refuse_unequal(plan(SPLIT), make_staged(*(counts(s) for s in brought)))


def make_decoded(
    rows: list[int], dead: list[int], deleted: list[int], keys: int | None = None
) -> Decoded:
    """Returns a decoded batch of four messages. Messages that are in no argument are dropped.

    Args:
        rows: number of the message of each row.
        dead: numbers of the dead letters.
        deleted: number of the message of each delete.
        keys: number of keys of deletes; by default one per delete.
    """
    words = pa.array(["x"] * len(dead), pa.string())
    deletes = Deletes(
        pa.record_batch(
            [pa.array(range(len(deleted) if keys is None else keys), pa.int64())], ["id"]
        ),
        pa.array(deleted, pa.int64()),
    )
    index, dropped = pa.array(rows, pa.int64()), 4 - len({*rows, *dead, *deleted})
    return Decoded(
        pa.record_batch([index], ["id"]),
        index,
        pa.array(dead, pa.int64()),
        words,
        words,
        words,
        dropped=dropped,
        deletes=deletes,
    )


@pytest.mark.parametrize(
    ("decoded_batch", "keyed", "says"),
    [
        (make_decoded([0, 1], [3], [0, 0, 2]), True, None),
        (make_decoded([0, 1], [3], []), False, None),
        (
            make_decoded([0, 1], [3], [0, 0, 2]),
            False,
            "3 deletes came for a table without a primary key",
        ),
        (
            make_decoded([0], [3], [2, 1]),
            True,
            "deletes are not in the order of the batch's messages",
        ),
        (make_decoded([0], [], [4]), True, "deletes are not in the order of the batch's messages"),
        (make_decoded([0], [], [1], keys=2), True, "2 deletes came with the messages of 1"),
        (make_decoded([0], [1, 2], [2]), True, "a message is a delete and a dead letter"),
    ],
)
def test_each_delete_is_some_messages(
    decoded_batch: Decoded, keyed: bool, says: str | None
) -> None:
    """A message that only deletes counts once.

    Deletes without a message, or in a table without a key, refuse the window.
    """
    split, messages = Split("shop.things", 1, 0, 4), messages_with([b""] * 4)
    if says is None:
        refuse_unplaced(split, messages, decoded_batch, keyed=keyed)
    else:
        with pytest.raises(AccountingError, match=says):
            refuse_unplaced(split, messages, decoded_batch, keyed=keyed)


# --- counts in a whole run


class LyingReader:
    """A reader whose summary is wrong."""

    def __init__(self, honest: Reader, **lies: int) -> None:
        self._honest, self._lies = honest, lies

    def read(self, split: Split, take: Take) -> ReadSummary:
        return msgspec.structs.replace(self._honest.read(split, take), **self._lies)


@dataclass(frozen=True)
class StumblingReader:
    """A reader that gives the right number of messages, but other offsets, in the given batches."""

    honest: Reader
    offset_batches: tuple[tuple[int, ...], ...]

    def read(self, split: Split, take: Take) -> ReadSummary:
        batches: list[pa.RecordBatch] = []
        summary = self.honest.read(split, batches.append)
        column = batches[0].schema.get_field_index("offset")
        rest = batches[0]
        for offsets in self.offset_batches:
            batch, rest = rest.slice(0, len(offsets)), rest.slice(len(offsets))
            take(
                batch.set_column(column, batch.schema.field(column), pa.array(offsets, pa.int64()))
            )
        return summary


Lie = Callable[[Decoded], Decoded]


@dataclass(frozen=True)
class Lying:
    """A decoder, or a transform, whose result is changed by `lie`."""

    honest: Any
    lie: Lie

    def columns(self, input_columns: Columns) -> Columns:
        return self.honest.columns(input_columns)

    def open(self) -> Callable[..., Decoded]:
        step = self.honest.open()
        return lambda *arguments: self.lie(step(*arguments))


def lie_about(decoded: Decoded, skipped_rows: int = 0, **lies: Any) -> Decoded:
    """Returns a decoded batch with changed fields, and without the first rows."""
    columns = {
        name: pa.array(lie, getattr(decoded, name).type) if isinstance(lie, list) else lie
        for name, lie in lies.items()
    }
    return replace(decoded, rows=decoded.rows.slice(skipped_rows), **columns)


def first_twice(decoded: Decoded) -> Decoded:
    """Returns a decoded batch whose first row is doubled, with correct counts."""
    made_from = np.array([0, *range(decoded.rows.num_rows)])
    return decoded.with_rows(decoded.rows.take(pa.array(made_from)), made_from)


def all_but_the_first(decoded: Decoded) -> Decoded:
    """Returns a decoded batch without its first row, with correct counts."""
    return decoded.with_rows(decoded.rows.slice(1), np.arange(1, decoded.rows.num_rows))


class LyingStager:
    """A stager whose count of rows is wrong."""

    def __init__(self, honest: Stager, lie: int) -> None:
        self._honest, self._lie = honest, lie

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)

    def finish(self) -> Any:
        staging = self._honest.finish()
        return msgspec.structs.replace(staging, rows=staging.rows + self._lie)


class LyingStore:
    """A sink, or a store of dead letters, whose stagers count wrong."""

    def __init__(self, honest: Any, lie: int) -> None:
        self._honest, self._lie = honest, lie

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)

    def stager(self, *arguments: Any) -> Any:
        return partial(_lying, self._honest.stager(*arguments), self._lie)


def _lying(factory: Any, lie: int, split: Split) -> LyingStager:
    return LyingStager(factory(split), lie)


@dataclass
class Bank:
    """A topic of payments and a pipeline on it. Some of its messages are refused."""

    folder: Path
    broker: MemoryBroker

    def pipeline(
        self,
        max_dead_ratio: float | None = 0.5,
        on_null: Literal["dead", "drop"] = "dead",
        **stages: Any,
    ) -> Pipeline:
        spec = parse_spec(
            {
                "id": "things",
                "source": {"bootstrap_servers": "127.0.0.1:9", "topic": "bank.payments"},
                "window": {"grid": "hourly", "start": START},
                "decode": {"schema": "schema.py:Payment"},
                "limits": {"max_dead_ratio": max_dead_ratio} | stages,
                "sink": {"path": str(self.folder / "table")},
                "state": str(self.folder / "state.db"),
            },
            self.folder,
        )
        columns = Columns.of(load_model(ModelReference(spec.decode.schema_, spec.folder)))

        def reader(planned: ReadPlan) -> Reader:
            return MemoryReader(self.broker, planned)

        return Pipeline(
            spec,
            lambda: columns,
            lambda: RowDecoder(
                ModelReference(spec.decode.schema_, spec.folder), JsonEncoding(), on_null=on_null
            ),
            lambda: Validate(ModelReference(spec.decode.schema_, spec.folder)),
            self.broker,
            reader,
            open_ledger(spec.state_url()),
            DeltaSink(spec.sink_path(), columns.arrow_schema),
            delta_dead_letters(spec.sink_path()),
            LocalEngine(),
        )

    def run(self, pipeline: Pipeline) -> Any:
        return run(pipeline, HOUR, Request("r"))

    def produce(self, *values: bytes | None) -> None:
        for i, value in enumerate(values):
            self.broker.produce(PAYMENTS, value, timestamp=START + timedelta(seconds=i))


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    (tmp_path / "schema.py").write_text(SCHEMA)
    broker = MemoryBroker()
    broker.create_topic("bank.payments", partitions=1)
    return Bank(tmp_path, broker)


def refuse_window(bank: Bank, pipeline: Pipeline) -> str:
    """Returns the error that refuses the window, and asserts that nothing of it is visible."""
    with pytest.raises(AccountingError) as caught:
        bank.run(pipeline)
    assert pipeline.sink.look(HOUR) is None
    assert not DeltaTable(str(bank.folder / "table")).file_uris()
    return str(caught.value)


@pytest.mark.parametrize("lies", [{"read": 2}, {"read": 4}, {"next_offset": 2}, {"skipped": 1}])
def test_a_reader_that_lies_commits_nothing(bank: Bank, lies: dict[str, int]) -> None:
    """A window whose reader miscounts is refused before anything is visible."""
    bank.produce(*[b'{"amount": 1}'] * 3)
    honest = bank.pipeline()
    assert "disagree" in refuse_window(
        bank,
        replace(honest, reader=lambda read_plan: LyingReader(honest.reader(read_plan), **lies)),
    )


@pytest.mark.parametrize(
    ("offset_batches", "wrong_offset"),
    [
        (((0, 1, 1),), 1),
        (((0, 2, 1),), 1),
        (((0, 1), (1,)), 1),
        (((0,), (2, 1)), 1),
        (((1, 2), (0,)), 0),
        (((-1, 1, 2),), -1),
        (((0, 1, 3),), 3),
    ],
)
def test_a_reader_that_stumbles_commits_nothing(
    bank: Bank, offset_batches: tuple[tuple[int, ...], ...], wrong_offset: int
) -> None:
    """A window with one message twice and another missing, or one of another window, is refused
    although the numbers add up.
    """
    bank.produce(*[b'{"amount": 1}'] * 3)
    honest = bank.pipeline()
    text = refuse_window(
        bank,
        replace(
            honest,
            reader=lambda read_plan: StumblingReader(honest.reader(read_plan), offset_batches),
        ),
    )
    assert f"returned offset {wrong_offset} out of order" in text
    assert "bug in the reader" in text


@pytest.mark.parametrize(
    "lies", [{"sink": 1}, {"sink": -1}, {"dead_letters": 1}, {"dead_letters": -1}]
)
def test_a_stager_that_lies_commits_nothing(bank: Bank, lies: dict[str, int]) -> None:
    """A window whose stager miscounts is refused before anything is visible."""
    bank.produce(b'{"amount": 1}', b'{"amount": 2}', b"poison")
    honest = bank.pipeline()
    assert "disagree" in refuse_window(
        bank,
        replace(
            honest,
            **{store: LyingStore(getattr(honest, store), lie) for store, lie in lies.items()},
        ),
    )


DECODED: list[tuple[dict[str, Any], str]] = [
    (
        {"filtered": 1},
        "5 of 4 messages accounted for: 2 valid + 1 dead + 1 dropped + 1 filtered",
    ),
    (
        {"dropped": 2},
        "5 of 4 messages accounted for: 2 valid + 1 dead + 2 dropped + 0 filtered",
    ),
    ({"dropped": 0}, "3 of 4 messages accounted for"),
    ({"filtered": -1, "dropped": 2}, "a count is negative"),
    ({"dropped": -1, "filtered": 2}, "a count is negative"),
    ({"skipped_rows": 1, "row_index": [3]}, "3 of 4 messages accounted for: 1 valid + 1 dead"),
    ({"row_index": [0, 0]}, "3 of 4 messages accounted for: 1 valid + 1 dead"),
    ({"skipped_rows": 1}, "1 row came with the messages of 2"),
    ({"row_index": [3, 0]}, "rows are not in the order of the batch's messages"),
    ({"row_index": [0, 4]}, "rows are not in the order of the batch's messages"),
    ({"row_index": [-1, 0]}, "rows are not in the order of the batch's messages"),
    ({"row_index": [0, 1]}, "a message is a row and a dead letter"),
    ({"dead_index": [4]}, "dead letters are not in the order of the batch's messages"),
    ({"dead_index": [-1]}, "dead letters are not in the order of the batch's messages"),
    (
        {
            "dropped": 0,
            "dead_index": [1, 1],
            "dead_stage": ["value"] * 2,
            "dead_reason": ["x"] * 2,
            "dead_detail": ["x"] * 2,
        },
        "dead letters are not in the order of the batch's messages, each once",
    ),
]


@pytest.mark.parametrize("liar", ["decoder", "transform"])
@pytest.mark.parametrize(("lies", "says"), DECODED)
def test_a_decoder_or_transform_that_lies_commits_nothing(
    bank: Bank, liar: str, lies: dict[str, Any], says: str
) -> None:
    """A decoder or transform that miscounts, in one count or in several that add up, refuses
    the window.

    The error names the batch.
    """
    bank.produce(b'{"amount": 1}', b"poison", None, b'{"amount": 2}')
    honest = bank.pipeline(on_null="drop")
    step = getattr(honest, liar)()
    text = refuse_window(
        bank, replace(honest, **{liar: lambda: Lying(step, partial(lie_about, **lies))})
    )
    assert says in text
    assert "miscounted" in text
    assert "bank.payments[0]@0" in text


def test_several_rows_of_a_message_are_no_lie(bank: Bank) -> None:
    """A message that became two rows is one valid message and two rows."""
    bank.produce(b'{"amount": 1}', b"poison", b'{"amount": 2}')
    honest = bank.pipeline()
    more = replace(honest, transform=lambda: Lying(honest.transform(), first_twice))
    counts = bank.run(more).committed.receipt.counts
    assert (counts.read, counts.valid, counts.rows, counts.dead, counts.filtered) == (3, 2, 3, 1, 0)


def test_a_transform_that_says_what_it_does_is_believed(bank: Bank) -> None:
    """Rows that a transform leaves out and counts as filtered are accepted."""
    bank.produce(b'{"amount": 1}', b"poison", None, b'{"amount": 2}')
    honest = bank.pipeline(on_null="drop")
    fewer = replace(honest, transform=lambda: Lying(honest.transform(), all_but_the_first))
    counts = bank.run(fewer).committed.receipt.counts
    assert (
        counts.read,
        counts.valid,
        counts.rows,
        counts.dead,
        counts.dropped,
        counts.filtered,
    ) == (4, 1, 1, 1, 1, 1)


def test_messages_that_lost_a_part_of_a_timestamp_are_counted(bank: Bank) -> None:
    """The receipt has the decoder's number of messages with truncated timestamps."""
    bank.produce(b'{"amount": 1}', b'{"amount": 2}')
    honest = bank.pipeline()
    counts = bank.run(
        replace(
            honest, decoder=lambda: Lying(honest.decoder(), partial(lie_about, cut=np.arange(2)))
        )
    ).committed.receipt.counts
    assert (counts.truncated, counts.valid) == (2, 2)


# --- dead letters


def test_a_refused_window_says_what_to_fix(bank: Bank) -> None:
    """The error names the column, the expected and the actual type, the number, and the offset
    of the first.

    It contains no value.
    """
    bank.produce(*[b'{"amount": 12345.75}'] * 120)
    with pytest.raises(DeadLetterLimitError) as caught:
        bank.run(bank.pipeline())
    text = str(caught.value)
    assert (
        "120 of 120 messages refused: $.amount expected int, got float (120). First:"
        " bank.payments[0]@0. " in text
    )
    assert "more than limits.max_dead_ratio 0.5 allows" in text
    assert f"windrow dead show SPEC --window {HOUR.key}" in text
    assert "12345" not in text
    assert len(text) < 500


def test_a_refused_windows_dead_letters_can_be_read(bank: Bank) -> None:
    """Dead letters of a refused window are stored before the limit is checked.

    The sink knows their attempt until the window commits.
    """
    bank.produce(b'{"amount": 1}', b"poison", b"poison")
    pipeline = bank.pipeline()
    for _ in range(2):
        with pytest.raises(DeadLetterLimitError):
            bank.run(pipeline)
    ((key, attempt),) = refused_attempts(pipeline.dead_letters, (), None).items()
    assert key == HOUR.key
    assert read_dead(pipeline.sink, pipeline.dead_letters, HOUR).num_rows == 0
    assert read_dead(pipeline.sink, pipeline.dead_letters, HOUR, attempt=attempt)[
        "_offset"
    ].to_pylist() == [1, 2]
    committed = bank.run(bank.pipeline(max_dead_ratio=1.0)).committed
    assert committed.receipt.counts.dead == 2
    committed = {c.receipt.window for c in pipeline.sink.receipts()}
    assert refused_attempts(pipeline.dead_letters, committed, None) == {}


def test_the_dead_letters_of_a_refused_replay_are_named(bank: Bank) -> None:
    """The advice of a refused replay names the attempt, because without it the committed
    attempt's letters are shown.
    """
    bank.produce(b'{"amount": 1}', b"poison", b"poison")
    with pytest.raises(DeadLetterLimitError) as first:
        bank.run(bank.pipeline())
    assert "--attempt" not in str(first.value)
    committed = bank.run(bank.pipeline(max_dead_ratio=1.0)).committed.receipt
    pipeline = bank.pipeline()
    with pytest.raises(DeadLetterLimitError) as refused:
        run(pipeline, HOUR, Request("again", replace=True))
    named = re.search(r"--attempt (\w+)", str(refused.value))
    assert named is not None
    assert named[1] != committed.attempt
    assert read_dead(pipeline.sink, pipeline.dead_letters, HOUR, attempt=named[1]).num_rows == 2


def test_a_receipt_keeps_reasons_and_no_sentences(bank: Bank) -> None:
    """A receipt has only the short reasons with their counts.

    The detailed texts are in the error and the dead letters.
    """
    bank.produce(b'{"amount": 1}', b'{"amount": 1.5}')
    receipt = bank.run(bank.pipeline()).committed.receipt
    assert receipt.splits[0].reasons == (("wrong_type", 1),)
    assert b"expected" not in msgspec.json.encode(receipt).lower()


def limited(ratio: float | None = None, count: int | None = None) -> None:
    """Checks 2 dead letters of 10 against limits."""
    refuse_too_many_dead(
        HOUR,
        make_staged(counts(SPLIT)),
        LimitsSpec(max_dead_ratio=ratio, max_dead_count=count),
        "so",
    )


def test_limits_are_inclusive() -> None:
    """A limit allows its exact number, None is no limit, and one more is refused with the
    limit's name.
    """
    limited()
    limited(ratio=0.2, count=2)
    with pytest.raises(DeadLetterLimitError, match=r"max_dead_ratio 0\.19 allows"):
        limited(ratio=0.19, count=2)
    with pytest.raises(DeadLetterLimitError, match="max_dead_count 1 allows"):
        limited(ratio=0.2, count=1)


def test_one_poison_message_refuses_no_window(bank: Bank) -> None:
    """With the default limits, 9 good messages and a bad one are committed.

    A ratio of 0 allows no dead letter.
    """
    bank.produce(*[b'{"amount": 1}'] * 9, b"poison")
    counts = bank.run(bank.pipeline(LimitsSpec().max_dead_ratio)).committed.receipt.counts
    assert (counts.rows, counts.dead) == (9, 1)
    assert [
        is_beyond_share(dead, 10, share) for dead, share in ((1, 0.01), (2, 0.01), (1, 0.0))
    ] == [False, True, True]


def test_splits_are_told_together() -> None:
    """Kinds of several splits are added up; the error has the five most frequent, and the
    plan's first offset.
    """
    first = make_staged(
        counts(SPLIT, first_dead=((105, "x"),)),
        refused=(RefusedAt("rules", 6, tuple((f"$.f{i} is odd", 1) for i in range(6))),),
    )
    second = make_staged(
        counts(Split("shop.things", 2, 0, 10), first_dead=((3, "x"),)),
        refused=(RefusedAt("rules", 13, (("$.f5 is odd", 9), (OTHERS, 4))),),
    )
    with pytest.raises(DeadLetterLimitError) as caught:
        refuse_too_many_dead(HOUR, first + second, LimitsSpec(max_dead_ratio=0.0), "so")
    kinds = (
        "$.f5 is odd (10); $.f0 is odd (1); $.f1 is odd (1); $.f2 is odd (1); $.f3 is odd (1);"
        " other reasons (5)"
    )
    assert f"4 of 20 messages refused: {kinds}. First: shop.things[1]@105." in caught.value.message


ANY = {"max_dead_ratio": None}
BY_STAGE = (
    RefusedAt("key", 1, (("key of 3 bytes", 1),), (104,)),
    RefusedAt("rules", 4, (("$.a failed x", 4),), (101, 102, 103)),
)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (
            {"key": {"max_dead_count": 0}},
            "1 of 20 messages refused at stage key: key of 3 bytes (1). First: shop.things[1]@104.",
        ),
        (
            {"rules": {"max_dead_ratio": 0.3}},
            (
                "8 of 20 messages refused at stage rules: $.a failed x (8). First:"
                " shop.things[1]@101, shop.things[1]@102, "
            ),
        ),
        (
            {"rules": {"max_dead_count": 7}, "key": {"max_dead_count": 1}},
            "8 of 20 messages refused at stage rules",
        ),
    ],
)
def test_each_stage_has_limits_of_its_own(limits: dict[str, Any], says: str) -> None:
    """The dead letters of each stage are checked against the stage's own limits, over all
    splits.

    The error names stage, counts, offsets and limit.
    """
    other_refusals = msgspec.structs.replace(BY_STAGE[1], first=(5,))
    all_staged = make_staged(counts(SPLIT), refused=BY_STAGE) + make_staged(
        counts(Split("shop.things", 2, 0, 10)), refused=(other_refusals,)
    )
    with pytest.raises(DeadLetterLimitError) as caught:
        refuse_too_many_dead(HOUR, all_staged, LimitsSpec.model_validate(ANY | limits), "so")
    assert says in caught.value.message
    stage, ((name, value), *_) = next(
        (stage, list(bounds.items())) for stage, bounds in limits.items()
    )
    assert caught.value.message.endswith(f"more than limits.{stage}.{name} {value} allows")


def test_a_stage_may_refuse_what_its_limits_allow() -> None:
    """Limits of a stage are inclusive, and don't apply to other stages."""
    bounds = {
        "key": {"max_dead_count": 1, "max_dead_ratio": 0.1},
        "rules": {"max_dead_ratio": 0.4},
        "value": {"max_dead_count": 0},
    }
    refuse_too_many_dead(
        HOUR,
        make_staged(counts(SPLIT), refused=BY_STAGE),
        LimitsSpec.model_validate(ANY | bounds),
        "so",
    )


def test_a_limit_of_a_stage_refuses_a_window(bank: Bank) -> None:
    """A window whose values are well-formed but don't fit the schema is refused by the schema's
    limit only.
    """
    bank.produce(
        b'{"amount": 1}', b'{"amount": 1.5}', b"poison", b'{"amount": 2}', b'{"amount": 3}'
    )
    with pytest.raises(DeadLetterLimitError) as caught:
        bank.run(bank.pipeline(schema={"max_dead_count": 0}))
    assert (
        "1 of 5 messages refused at stage schema: $.amount expected int, got float (1). First:"
        " bank.payments[0]@1." in caught.value.message
    )
    assert (
        bank.run(
            bank.pipeline(schema={"max_dead_count": 1}, value={"max_dead_ratio": 0.2})
        ).committed.receipt.counts.dead
        == 2
    )


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ("Expected int, got float - at $.amount", "$.amount expected int, got float"),
        ("Expected int, got str - at $.items[17].price", "$.items[].price expected int, got str"),
        ("Object misses a required field - at $.id", "$.id: Object misses a required field"),
        ("Failed greater_than(0) - at $.id", "$.id failed greater_than(0)"),
        ("JSON is malformed: Expecting value (character 7)", "JSON is malformed: Expecting value"),
        (
            "Expected UTF-8, got invalid start byte (byte 3)",
            "expected UTF-8, got invalid start byte",
        ),
        (None, "tombstone"),
    ],
)
def test_details_in_words(detail: str | None, words: str) -> None:
    """The path in the document comes first. Positions that differ between messages are left out."""
    assert in_words("tombstone", detail) == words


def test_kinds_are_bounded() -> None:
    """The number of kinds of dead letters that are kept is limited, and all letters are counted."""
    refusals = Refusals()
    for batch in range(3):
        details = [f"Failed rule_{i} - at $.a" for i in range(batch * 1000, batch * 1000 + 1000)]
        refusals.add(["rules"] * 1000, ["r"] * 1000, details, range(1000))
    details = ["Expected int, got str - at $.b"] * 2 + ["Failed rule_7 - at $.a" + "x" * 1000] * 3
    refusals.add(["rules"] * 5, ["r"] * 5, details, range(5))
    (kinds,) = [refused.kinds for refused in refusals.by_stage()]
    assert len(kinds) == 11
    assert sum(n for _, n in kinds) == 3005
    assert max(len(kind) for kind, _ in kinds) <= 200


# --- fewer messages


def receipt(generation: int, *read: tuple[str, int, int]) -> Receipt:
    """Returns a receipt of a generation whose splits have read these messages.

    Args:
        generation: the generation.
        read: topic, partition and number of messages of each split.
    """
    splits = tuple(
        counts(Split(topic, partition, 0, 10), read=messages) for topic, partition, messages in read
    )
    planned = plan()
    return Receipt(
        planned,
        planned.digest,
        generation,
        "a",
        "r",
        "l",
        "hourly",
        Counts.total(splits),
        splits,
        (),
        "test",
        START,
        0.1,
    )


def test_a_replacement_with_as_many_messages_is_none_of_fewer() -> None:
    """A replacement with as many or more messages in each topic-partition passes.

    New topic-partitions count as more.
    """
    replaced = receipt(0, ("a", 0, 4), ("a", 0, 3), ("b", 0, 0))
    refuse_fewer(receipt(1, ("a", 0, 7)), replaced)
    refuse_fewer(receipt(1, ("a", 0, 1), ("a", 0, 7), ("b", 0, 1), ("c", 0, 1)), replaced)


@pytest.mark.parametrize(
    ("read", "first_fewer", "new_count", "old_count"),
    [
        ([("a", 0, 4), ("a", 0, 2), ("a", 1, 9), ("b", 0, 9)], ("a", 0), 6, 7),
        ([("a", 0, 7), ("a", 1, 1), ("b", 0, 9)], ("a", 1), 1, 2),
        ([("a", 0, 9), ("a", 1, 9)], ("b", 0), 0, 3),
        ([("b", 0, 2)], ("a", 0), 0, 7),
    ],
)
def test_more_in_one_topic_partition_hide_no_fewer_in_another(
    read: list[tuple[str, int, int]], first_fewer: tuple[str, int], new_count: int, old_count: int
) -> None:
    """Fewer messages in one topic-partition refuse a replacement, despite more in another.

    The error names the first such topic-partition, and both numbers.
    """
    with pytest.raises(DataLossError) as caught:
        refuse_fewer(
            receipt(3, *read), receipt(2, ("b", 0, 3), ("a", 0, 4), ("a", 0, 3), ("a", 1, 2))
        )
    error, messages = caught.value, format_count(new_count, "message")
    assert (
        error.message
        == f"Replacing window {HOUR.key}: {messages} left, generation 2 had {old_count}"
    )
    assert (error.topic, error.partition, error.stage) == (*first_fewer, "check")
    assert "--accept-fewer" in error.advice


def test_a_replacement_undoes_no_edit() -> None:
    """A window with edited messages can't be replaced; one without can."""
    refuse_undoing(receipt(0))
    refuse_undoing(msgspec.structs.replace(receipt(1), dead_replay=DeadReplay("a", "a", 2)))
    edited = msgspec.structs.replace(receipt(1), dead_replay=DeadReplay("a", "a", 2, edited=1))
    with pytest.raises(RefusedError) as caught:
        refuse_undoing(edited)
    assert caught.value.message.startswith(f"Window {HOUR.key} holds 1 message edited")
    assert caught.value.stage == "plan"
    assert "--accept-fewer" in caught.value.advice


# --- unexplained offsets


@pytest.mark.parametrize(
    ("markers", "compacted", "warns"), [(130, False, False), (131, False, True), (131, True, False)]
)
def test_more_markers_than_messages_explain(markers: int, compacted: bool, warns: bool) -> None:
    """Up to two transaction markers per message, and a hundred more, explain missing offsets;
    one more gives a warning.

    A compacted topic gives no warning.
    """
    split = Split("shop.things", 1, 100, 110 + markers + 5)
    warnings = find_unexplained(
        plan(split), [counts(split, aborted=5)], frozenset({"shop.things"} if compacted else ())
    )
    assert bool(warnings) is warns


def test_markers_of_aborted_transactions_explain_offsets() -> None:
    """Aborted messages aren't markers, and each may have had two markers."""
    split = Split("shop.things", 1, 0, 10 + 50 + 220)
    assert find_unexplained(plan(split), [counts(split, aborted=50)], frozenset()) == ()
    split = Split("shop.things", 1, 0, 10 + 50 + 221)
    (warning,) = find_unexplained(plan(split), [counts(split, aborted=50)], frozenset())
    assert "221 offsets with neither" in warning
