"""Lookups as a transform.

The source is asked once for each new key. Its answers are joined to the rows of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, reduce
from operator import and_
from typing import Any, Literal, cast

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from windrow.ingest.errors import (
    RefusedError,
    SpecError,
    WindrowError,
    check_output,
    format_count,
    malformed_output_error,
)
from windrow.ingest.model.lookup import LookedUp, merge_parts
from windrow.ingest.ports.decoder import RULES, Decoded, Refusal
from windrow.ingest.ports.lookup import MOST_BYTES, PIN_ANEW, Answers, Ask, LookupSource, version_of
from windrow.ingest.ports.transform import Apply, ColumnSource, Transform
from windrow.ingest.schema.checksum import checksum, checksum_text
from windrow.ingest.schema.columns import Column, Columns
from windrow.ingest.schema.dtypes import ROW_NUMBER
from windrow.ingest.transform.step_rows import (
    StepOutput,
    mark_unavailable,
    refuse_unanswerable,
    unavailable_rows,
)


@dataclass(frozen=True)
class Lookup:
    """A transform that adds columns of a source to each row, by a key.

    Attributes:
        name: the lookup's name.
        key: pairs of a column of the rows, and the column of the source that it must equal.
        take: pairs of a column of the source, and its name in the rows.
        source: the table or service.
        on_miss: what becomes of a row without an answer.
        first_by: a column of the source, and whether its greatest value comes first. It
            decides between several rows of one key. None: such a key is an error.
        setting: the step's place in the spec, for messages.
        pin: the version of the source; None for the version of the moment.
        types: the columns that the source is asked for; None for its columns of the moment.
    """

    name: str
    key: tuple[tuple[str, str], ...]
    take: tuple[tuple[str, str], ...]
    source: LookupSource
    on_miss: Literal["null", "dead", "fail"] = "null"
    first_by: tuple[str, bool] | None = None
    setting: str = "lookup"
    pin: str | None = None
    types: pa.Schema | None = None

    def columns(self, input_columns: Columns) -> Columns:
        """Returns the input columns and the columns that are looked up, which are nullable.

        Raises:
            SpecError: a column is missing, or keys can't be compared.
            UnreachableError: the source doesn't answer.
        """
        source, rows = self._source_schema, input_columns.arrow_schema
        mistakes = self._mistakes(rows, source)
        if mistakes:
            raise SpecError(
                f"{self.setting} can't be used: " + "; ".join(mistakes),
                "spec",
                f"{self.source.identity} is asked. Nothing was read.",
            )
        added = (
            Column(column_name, kind, nullable=True)
            for column_name, kind in self.added(source).items()
        )
        return replace(input_columns, columns=(*input_columns.columns, *added))

    def added(self, source: pa.Schema) -> dict[str, pa.DataType]:
        """Returns the types of the columns that the step adds, by name.

        Args:
            source: the source's columns.
        """
        return {
            column_name: source.field(source_column).type
            for source_column, column_name in self.take
        }

    def comparable(self, row_type: pa.DataType, source_type: pa.DataType) -> bool:
        """Returns whether keys of two types can be compared without a lossy cast."""
        is_integer = pa.types.is_integer
        return not (pa.types.is_floating(row_type) or pa.types.is_nested(row_type)) and (
            row_type == source_type or (is_integer(row_type) and is_integer(source_type))
        )

    def _mistakes(self, rows: pa.Schema, source: pa.Schema) -> list[str]:
        source_names = ", ".join(source.names)
        mistakes = [
            f"{self.name} has {count or 'no'} column{'s' * (count > 1)} {source_column} of a type"
            f" that a table takes; it has {source_names}"
            for source_column in self._source_columns
            if (count := source.names.count(source_column)) != 1
        ]
        for column, source_column in self.key:
            if column not in rows.names:
                mistakes.append(
                    f"the rows have no column {column}; they have {', '.join(rows.names)}"
                )
            elif source.names.count(source_column) == 1:
                row_type, source_type = rows.field(column).type, source.field(source_column).type
                if not self.comparable(row_type, source_type):
                    mistakes.append(
                        f"{column} is {row_type}, and {source_column} is {source_type}:"
                        " can't be compared"
                    )
        return mistakes

    @property
    def reads(self) -> Mapping[str, frozenset[ColumnSource]]:
        """The columns that are added, each with its columns of the rows and of the source."""
        keys = [column for column, _ in self.key]
        return {name: frozenset([*keys, (self.name, column)]) for column, name in self.take}

    def sources(self) -> Mapping[str, LookupSource]:
        return {self.name: self.source}

    def pinned(self, versions: Mapping[str, str]) -> Transform:
        return replace(self, pin=versions.get(self.name), types=self.requested_schema())

    def version(self) -> str:
        """Returns the version of the source that is asked."""
        return version_of(self.source) if self.pin is None else self.pin

    def requested_schema(self) -> pa.Schema:
        """Returns the columns that the source is asked for.

        Raises:
            SpecError: the source lacks a column.
            UnreachableError: the source doesn't answer.
        """
        source = self._source_schema
        missing_columns = [
            source_column
            for source_column in self._source_columns
            if source.names.count(source_column) != 1
        ]
        if missing_columns:
            raise SpecError(
                f"{self.name} has no column {', '.join(missing_columns)} any more, or several",
                "setup",
                f"{self.setting} asks for it. Nothing was read.",
            )
        return pa.schema([source.field(source_column) for source_column in self._source_columns])

    @cached_property
    def _source_schema(self) -> pa.Schema:
        try:
            return check_output(self.source, self.source.schema(), pa.Schema)
        except WindrowError as error:
            error.advice = f"{self.setting} looks up {self.name} there. {error.advice}"
            raise

    @property
    def _source_columns(self) -> list[str]:
        """The source's columns in `key`, `take` and `first_by`."""
        order_columns = [] if self.first_by is None else [self.first_by[0]]
        return list(
            dict.fromkeys(
                [
                    *(source_column for _, source_column in self.key),
                    *(source_column for source_column, _ in self.take),
                    *order_columns,
                ]
            )
        )

    def open(self) -> Apply:
        return _ByKey(self)


class LookupStep:
    """A lookup for the rows of one split, in a worker."""

    matched_by = "key"

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._columns = [column for column, _ in lookup.key]

    def __call__(self, decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
        lookup = self._lookup
        output = StepOutput(lookup.name, frozenset(self._columns), may_keep=True)
        decoded = refuse_unanswerable(decoded, [output], "lookup", lookup.setting)
        try:
            return self._apply(decoded, messages)
        except RefusedError as error:
            error.advice += PIN_ANEW if lookup.source.is_repeatable else ""
            raise

    def _apply(self, decoded: Decoded, messages: pa.RecordBatch) -> Decoded:
        lookup, rows = self._lookup, decoded.rows
        answers, without, counts, refusals = self._answers(decoded, messages)
        missed = without & ~unavailable_rows(decoded, self._columns)
        counts = msgspec.structs.replace(counts, misses=int(missed.sum()))
        fields = (pa.field(name, a.type) for name, a in zip(lookup.reads, answers, strict=True))
        joined = pa.RecordBatch.from_arrays(
            [*rows.columns, *answers], schema=pa.schema([*rows.schema, *fields])
        )
        transformed = decoded.with_rows(joined, np.arange(len(missed)))
        transformed = replace(transformed, lookups=merge_parts([*transformed.lookups, counts]))
        if missed.any() and lookup.on_miss == "fail":
            problem = (
                f"no row for the {self.matched_by} of {counts.misses} of"
                f" {format_count(len(missed), 'row')}"
            )
            raise self._refusal(problem, "Add what is missing.", decoded, messages, missed.argmax())
        passed_reads = {name: [name] for name in rows.schema.names}
        transformed = mark_unavailable(
            transformed, passed_reads | dict.fromkeys(lookup.reads, self._columns)
        )
        if lookup.on_miss == "dead":
            detail = f"No row of {lookup.name} has its {self.matched_by} - in {lookup.setting}"
            reason = f"lookup:{lookup.name}:no_match"
            refusals = [*refusals, Refusal(np.flatnonzero(missed), reason, detail)]
        return transformed.refused(RULES, refusals)

    def _answers(
        self, decoded: Decoded, messages: pa.RecordBatch, /
    ) -> tuple[list[pa.Array], npt.NDArray[np.bool_], LookedUp, list[Refusal]]:
        """Looks up all rows.

        Returns:
            The new columns; a mask of the rows without an answer; the counts of the lookup,
            with 0 `misses`; the refused rows.
        """
        raise NotImplementedError

    def _refusal(
        self, problem: str, advice: str, decoded: Decoded, messages: pa.RecordBatch, row: Any
    ) -> RefusedError:
        """Returns the error about a row, with its message's topic, partition and offset."""
        message = messages.slice(decoded.row_index[int(row)].as_py(), 1).to_pylist()[0]
        return RefusedError(
            f"{self._lookup.name} has {problem}: {self._lookup.setting},"
            f" {self._lookup.source.identity}",
            "validate",
            f"Nothing was committed. {advice}",
            message["topic"],
            message["partition"],
            message["offset"],
        )

    def _take(self, values: pa.ChunkedArray, indices: pa.Array) -> pa.Array:
        try:
            return _combine(values.take(indices))
        except pa.ArrowInvalid:  # an Arrow string column holds at most 2 GiB
            raise self._too_large(len(indices)) from None

    def _too_large(self, rows: int) -> SpecError:
        """Returns the error for answers that are too large for a batch."""
        return SpecError(
            f"What {self._lookup.name} gives is too large for a batch of"
            f" {format_count(rows, 'row')}",
            "validate",
            "Decode fewer messages at once (source.tuning.batch_messages).",
        )


class _ByKey(LookupStep):
    """A lookup by key in a worker. It asks for each distinct key of the split once.

    `_key_index` numbers the keys that were asked for. `_row_of_key[n]` is the row of `_rows`
    that answers key n. It is -1 if the source has no row, and `-2 - r` if the source refuses
    the key for `_reasons[r]`.
    """

    def __init__(self, lookup: Lookup) -> None:
        super().__init__(lookup)
        self._keys = [source_column for _, source_column in lookup.key]
        self._ask: Ask | None = None
        self._key_index: KeyIndex
        self._row_of_key = np.zeros(0, np.int64)
        self._reasons: list[str] = []
        self._rows: pa.Table

    def _answers(
        self, decoded: Decoded, messages: pa.RecordBatch
    ) -> tuple[list[pa.Array], npt.NDArray[np.bool_], LookedUp, list[Refusal]]:
        lookup, ask = self._lookup, self._ask or self._begin()
        keys = self._frame([decoded.rows[column] for column in self._columns])
        numbers = self._key_index.find(keys)
        others = np.flatnonzero(numbers < 0)
        new = keys[others].drop_nulls().unique()
        counts, ambiguous_keys = self._ask_new_keys(ask, new.sort(self._keys))
        numbers[others] = self._key_index.find(keys[others])
        if ambiguous_keys.size:
            advice = "Say which of them counts by first_by, or look up a key that has one row."
            row = np.isin(numbers, ambiguous_keys).argmax()
            raise self._refusal("several rows of one key", advice, decoded, messages, row)
        rows = np.full(len(numbers), -1)
        rows[numbers >= 0] = self._row_of_key[numbers[numbers >= 0]]
        row_indices = pa.array(rows, mask=rows < 0)
        answers = [
            self._take(self._rows[source_column], row_indices) for source_column, _ in lookup.take
        ]
        counts = msgspec.structs.replace(counts, hits=len(row_indices) - row_indices.null_count)
        refusals = [
            Refusal(
                np.flatnonzero(rows == -2 - number),
                f"lookup:{lookup.name}:refused",
                f"{lookup.name} refuses its key: {reason} - in {lookup.setting}",
            )
            for number, reason in enumerate(self._reasons)
        ]
        return answers, rows == -1, counts, refusals

    def _begin(self) -> Ask:
        lookup = self._lookup
        types = lookup.types or lookup.requested_schema()
        self._rows = types.empty_table()
        self._key_index = KeyIndex(
            self._frame([self._rows[source_column] for source_column in self._keys])
        )
        self._ask = lookup.source.open(lookup.version(), types)
        return self._ask

    def _frame(self, keys: Sequence[pa.Array]) -> pl.DataFrame:
        """Returns keys as a frame, under the names and key types of the source's columns."""
        arrays = [a.cast(f.type) for a, f in zip(keys, self._key_types(), strict=True)]
        return cast("pl.DataFrame", pl.from_arrow(pa.table(arrays, self._keys)))

    def _key_types(self) -> pa.Schema:
        """Returns the types in which keys are compared.

        They are the source's types. Whole numbers are compared as int64, which has room for
        the values of both sides.
        """
        fields = [self._rows.schema.field(source_column) for source_column in self._keys]
        return pa.schema([f.with_type(_widest(f.type)) for f in fields])

    def _ask_new_keys(self, ask: Ask, new: pl.DataFrame) -> tuple[LookedUp, npt.NDArray[np.int64]]:
        """Asks the source for new keys, and stores the answers.

        Returns:
            The counts of the lookup, and the numbers of the keys that have several rows.
        """
        if not new.height:
            return LookedUp(self._lookup.name, 0, 0, 0, 0, None, None, checksum_text(0)), _NONE
        began, keys = datetime.now(UTC), new.to_arrow().cast(self._key_types())
        source, types = self._lookup.source, self._rows.schema
        answers = check_output(source, ask(keys), Answers)
        rows = check_output(source, answers.rows, pa.Table, "rows")
        if not set(types) <= set(rows.schema):
            raise malformed_output_error(
                source, f"rows without the columns asked for: {', '.join(types.names)}"
            )
        ended, rows = datetime.now(UTC), rows.select(types.names)
        if self._lookup.first_by is not None:
            rows = rows.take(_order(rows, *self._lookup.first_by))
        self._key_index.add(new)
        key_numbers, ambiguous_keys = (
            self._key_index.find(
                self._frame([rows[source_column] for source_column in self._keys])
            ),
            _NONE,
        )
        asked_for = np.flatnonzero(key_numbers >= len(self._row_of_key))
        if self._lookup.first_by is None:
            ambiguous_keys = np.flatnonzero(np.bincount(key_numbers[asked_for]) > 1)
        row_of_key = np.append(self._row_of_key, np.full(new.height, -1))
        first = asked_for[::-1]  # the first row of a key is assigned last, so it wins
        row_of_key[key_numbers[first]] = first + self._rows.num_rows
        for reason, refused in sorted(answers.refused.items(), reverse=True):
            if reason not in self._reasons:
                self._reasons.append(reason)
            key_numbers = self._key_index.find(
                self._frame([refused[source_column] for source_column in self._keys])
            )
            row_of_key[key_numbers[key_numbers >= 0]] = -2 - self._reasons.index(reason)
        self._rows = pa.concat_tables([self._rows, rows]).combine_chunks()
        if self._rows.nbytes > MOST_BYTES:
            raise SpecError(
                f"The answers of {self._lookup.name} take more than {MOST_BYTES >> 20} MiB",
                "validate",
                "Take fewer columns, or make splits smaller (source.split_records).",
            )
        added = row_of_key[len(self._row_of_key) :]
        row_indices, self._row_of_key = pa.array(added, mask=added < 0), row_of_key
        taken_columns = {
            column_name: _combine(self._rows[source_column].take(row_indices))
            for source_column, column_name in self._lookup.take
        }
        key_columns = {
            f"key:{source_column}": _combine(keys[source_column]) for source_column in self._keys
        }
        answered = checksum_text(checksum(pa.RecordBatch.from_pydict(key_columns | taken_columns)))
        name, requests = self._lookup.name, answers.requests
        return LookedUp(name, new.height, 0, 0, requests, began, ended, answered), ambiguous_keys


_NONE = np.zeros(0, np.int64)


def _order(rows: pa.Table, order_column: str, descending: bool) -> pa.Array:
    """Returns the numbers of the rows in the order of `first_by`; other columns break ties."""
    frame = cast("pl.DataFrame", pl.from_arrow(rows))
    least_last = [descending, *(False for _ in frame.columns)]
    order = pl.arg_sort_by([order_column, *frame.columns], descending=least_last, nulls_last=True)
    return frame.select(order).to_series().to_arrow()


def _combine(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _widest(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(kind) else kind


class KeyIndex:
    """Index of distinct keys without nulls, numbered from 0 in the order of their addition.

    A key is found by a binary search for its hash, and then compared. A join isn't used: it
    would hash all keys of the index again for each batch of rows.
    """

    def __init__(self, none: pl.DataFrame) -> None:
        self._keys = none
        self._hashes = np.zeros(0, np.uint64)
        self._numbers = np.zeros(0, np.int64)

    def add(self, keys: pl.DataFrame) -> None:
        """Adds distinct keys that are not in the index yet."""
        self._keys = pl.concat([self._keys, keys], rechunk=True)
        hashes = np.concatenate([self._hashes, keys.hash_rows().to_numpy()])
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        new = np.arange(len(self._numbers), len(order))
        self._numbers = np.append(self._numbers, new)[order]

    def find(self, keys: pl.DataFrame) -> npt.NDArray[np.int64]:
        """Returns the number of each key; -1 if the key isn't in the index, or has a null."""
        key_numbers = np.full(keys.height, -1, np.int64)
        if self._keys.is_empty():
            return key_numbers
        hashes = keys.hash_rows().to_numpy()
        order = np.argsort(hashes)  # sorted searches read neighbouring memory
        positions = np.empty(len(order), np.int64)
        positions[order] = np.searchsorted(self._hashes, hashes[order])
        positions = np.minimum(positions, len(self._hashes) - 1)
        numbers = self._numbers[positions]
        candidates = self._keys[numbers]
        same = reduce(and_, (candidates[name] == keys[name] for name in keys.columns))
        alike, equal = self._hashes[positions] == hashes, same.fill_null(value=False).to_numpy()
        key_numbers[equal] = numbers[equal]
        collisions = np.flatnonzero(alike & ~equal)  # two keys share a hash, or a key has a null
        if collisions.size:
            numbered = self._keys.with_row_index(ROW_NUMBER)
            joined = keys[collisions].join(
                numbered, keys.columns, how="left", maintain_order="left"
            )
            key_numbers[collisions] = joined[ROW_NUMBER].cast(pl.Int64).fill_null(-1).to_numpy()
        return key_numbers
