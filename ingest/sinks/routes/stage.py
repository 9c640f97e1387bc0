"""Stages rows for several tables at once: finds the table of each row, whole columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError, UnstorableRowsError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staging
from windrow.ingest.ports.sink import CheckingStager, Stager, StagerFactory
from windrow.ingest.sinks.kit import DELETED, checksum_text, last_values
from windrow.ingest.sinks.routes.parts import TableRows

By = Literal["column", "header", "topic", "record", "schema_id"]


class Rule(msgspec.Struct, frozen=True):
    """The rule of one table.

    Attributes:
        values: the values that lead to the table.
        pattern: a pattern (RE2) that matches a whole value; None if there are values.
    """

    values: tuple[str, ...] = ()
    pattern: str | None = None

    def is_readable(self) -> bool:
        """Returns whether RE2 accepts the pattern, both alone and in parentheses.

        In parentheses alone, `a)|(b` would be accepted too.
        """
        try:
            for pattern in () if self.pattern is None else (self.pattern, _anchored(self.pattern)):
                for kind in (pa.string(), pa.binary()):
                    pc.match_substring_regex(pa.array([""], kind), pattern)
        except pa.ArrowInvalid:
            return False
        return True

    def takes(self, texts: pa.Array) -> npt.NDArray[np.bool_]:
        """Returns the mask of the texts, or bytes, that the rule takes. None of them is null."""
        if self.pattern is not None:
            mask = pc.match_substring_regex(texts, _anchored(self.pattern))
        else:
            values = pa.array([v.encode() for v in self.values], pa.binary())
            mask = pc.is_in(
                texts, values if pa.types.is_binary(texts.type) else values.cast(pa.string())
            )
        return np.asarray(mask.to_numpy(zero_copy_only=False), np.bool_)


class Router(msgspec.Struct, frozen=True):
    """Rules in their order. The first rule that takes a row's value counts. Picklable.

    Attributes:
        routed_by: whether the value is that of a column, that of the last header with the name,
            the topic, the record's name or the schema's id.
        name: the name of the column or header.
        rules: the rules.
        refuses_others: whether a row, or a message, that no rule takes is refused.
        keyed: whether each table has a primary key, if the tables have rows of their own; the
            table of all other rows is last. A row has a struct for each table then
            (`ingest.formats.routed`). None if all tables take the same rows.
    """

    routed_by: By
    name: str
    rules: tuple[Rule, ...]
    refuses_others: bool = False
    keyed: tuple[bool, ...] | None = None

    def check_columns(self, rows: pa.Schema) -> None:
        """Checks that the rows have the column that leads to tables, if one does.

        Raises:
            SpecError: there is no such column, or its type can't be used for routing.
        """
        if self.routed_by != "column":
            return
        if self.name not in rows.names:
            raise SpecError(
                f"sink.name is {self.name}, and no row has such a column",
                "spec",
                f"Name one of {', '.join(rows.names)}.",
            )
        kind = rows.field(self.name).type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            raise SpecError(
                f"sink.name is {self.name}, which is {kind}: rows go by text, integers or booleans",
                "spec",
                "Name another column, or make one of it in the schema.",
            )

    def rules_of(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> npt.NDArray[np.intp]:
        """Returns the index of each row's rule.

        A row that no rule takes gets the number of rules.
        """
        distinct = self._values(rows, messages).dictionary_encode()
        # The last element is the rule of null.
        rule_of = np.full(len(distinct.dictionary) + 1, len(self.rules), np.intp)
        for number, rule in reversed(list(enumerate(self.rules))):
            rule_of[:-1][rule.takes(distinct.dictionary)] = number
        chosen: npt.NDArray[np.intp] = rule_of[
            distinct.indices.cast(pa.int64()).fill_null(len(distinct.dictionary)).to_numpy()
        ]
        return chosen

    def tables_of(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> npt.NDArray[np.intp]:
        """Returns the index of each row's table: that of its struct, or that of its rule."""
        if self.keyed is None:
            return self.rules_of(rows, messages)
        tables = np.full(rows.num_rows, len(self.rules), np.intp)
        for table in range(len(self.rules)):
            tables[rows.column(table).is_valid().to_numpy(zero_copy_only=False)] = table
        return tables

    def table_columns(self, table: int, rows: pa.Schema) -> pa.Schema:
        """Returns the columns of a table, of those of all rows."""
        return rows if self.keyed is None else pa.schema(list(rows.field(table).type))

    def in_table(self, table: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the rows of a table with its columns; a keyed table's with the marks of changes.

        The marks come after the structs of all tables.
        """
        if self.keyed is None:
            return rows
        own = pa.RecordBatch.from_struct_array(rows.column(table))
        marks = range(len(self.keyed), rows.num_columns if self.keyed[table] else 0)
        return pa.RecordBatch.from_arrays(
            [*own.columns, *(rows.column(mark) for mark in marks)],
            [*own.schema.names, *(rows.schema.names[mark] for mark in marks)],
        )

    def refuse_unrouted(self, tables: npt.NDArray[np.intp], messages: pa.RecordBatch) -> None:
        """Refuses rows that no rule takes, if the spec says so.

        Args:
            tables: the index of each row's table, as `tables_of` returns it.
            messages: the message of each row.

        Raises:
            UnstorableRowsError: there are such rows.
        """
        unrouted = np.flatnonzero(tables == len(self.rules))
        if self.refuses_others and len(unrouted):
            topic, partition, offset = (
                messages[name][unrouted[0]].as_py() for name in ("topic", "partition", "offset")
            )
            raise UnstorableRowsError(
                "No table takes a row with this value",
                "stage",
                "Nothing was committed. Change sink.tables, or have a step change such rows.",
                topic,
                partition,
                offset,
                unrouted.tolist(),
            )

    def _values(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Array:
        if self.routed_by == "topic":
            return messages["topic"].cast(pa.string())
        return (
            last_values(messages["headers"], self.name)
            if self.routed_by == "header"
            else rows[self.name].cast(pa.string())
        )


def _anchored(pattern: str) -> str:
    """Returns the pattern with anchors, so that it matches whole values."""
    return f"^(?:{pattern})$"


def parts_by_table(
    tables: npt.NDArray[np.intp], rows: pa.RecordBatch, messages: pa.RecordBatch
) -> Sequence[tuple[int, pa.RecordBatch, pa.RecordBatch]]:
    """Splits rows and their messages by table. They keep their order."""
    used = np.unique(tables)
    if len(used) == 1:
        return [(int(used[0]), rows, messages)]
    index = [pa.array(np.flatnonzero(tables == table)) for table in used]
    return [
        (int(table), rows.take(indices), messages.take(indices))
        for table, indices in zip(used, index, strict=True)
    ]


class RoutedStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers on executors. Picklable.

    Attributes:
        router: the rules.
        tables: the identity and the factory of each table, in the order of the rules. The table
            of all other rows is last.
    """

    router: Router
    tables: tuple[tuple[str, StagerFactory], ...]

    def __call__(self, split: Split) -> RoutedStager:
        """Makes a stager of the split for one attempt."""
        return RoutedStager(self.router, [(name, factory(split)) for name, factory in self.tables])


class RoutedStager:
    """A stager over the stagers of the tables (`ports.sink.Stager`)."""

    def __init__(self, router: Router, tables: Sequence[tuple[str, Stager]]) -> None:
        self._router, self._tables = router, tables
        self._messages, self._deletes = [0] * len(tables), [0] * len(tables)

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """Stages rows, after all tables have checked their rows."""
        if not rows.num_rows:
            return
        tables = self._router.tables_of(rows, messages)
        self._router.refuse_unrouted(tables, messages)
        parts = [
            (table, self._router.in_table(table, table_rows), table_messages)
            for table, table_rows, table_messages in parts_by_table(tables, rows, messages)
        ]
        for take in [
            self._ready(np.flatnonzero(tables == table), self._tables[table][1], *part)
            for table, *part in parts
        ]:
            take()
        for table, part_rows, part_messages in parts:
            if DELETED in part_rows.schema.names:
                self._deletes[table] += part_rows[DELETED].true_count
            offsets = part_messages["offset"].to_numpy()
            # The rows of one message are never in two batches.
            self._messages[table] += int(np.count_nonzero(np.diff(offsets))) + 1

    def _ready(
        self,
        numbers: npt.NDArray[np.intp],
        stager: Stager,
        rows: pa.RecordBatch,
        messages: pa.RecordBatch,
    ) -> Callable[[], None]:
        """Checks a table's rows; returns a function that stages them.

        Args:
            numbers: the rows' positions in the batch.
            stager: the table's stager.
            rows: the rows.
            messages: the message of each row.
        """
        if not isinstance(stager, CheckingStager):
            return partial(stager.add, rows, messages)
        try:
            return stager.check(rows, messages)
        except UnstorableRowsError as error:
            error.row_indices = numbers[error.row_indices].tolist()
            raise

    def finish(self) -> Staging:
        """Finishes all stagers; returns a committable for each table that has rows."""
        done = [stager.finish() for _, stager in self._tables]
        parts = [
            TableRows(
                name,
                staging.rows - deletes,
                messages,
                staging.checksum,
                staging.committables,
                deletes,
            )
            for (name, _), staging, messages, deletes in zip(
                self._tables, done, self._messages, self._deletes, strict=True
            )
            if staging.rows
        ]
        rows_checksum = checksum_text(sum(int(staging.checksum, 16) for staging in done))
        return Staging(
            sum(staging.rows for staging in done),
            rows_checksum,
            tuple(msgspec.json.encode(part).decode() for part in parts),
        )

    def discard(self) -> None:
        for _, stager in self._tables:
            stager.discard()
