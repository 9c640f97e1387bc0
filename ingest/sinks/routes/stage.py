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
from windrow.ingest.sinks.kit import checksum_text, last_values
from windrow.ingest.sinks.routes.parts import TableRows

By = Literal["column", "header", "topic"]


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
            or the topic.
        name: the name of the column or header.
        rules: the rules.
    """

    routed_by: By
    name: str
    rules: tuple[Rule, ...]

    def check_columns(self, rows: pa.Schema) -> None:
        """Checks the rules against the columns of the rows.

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

    def _values(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Array:
        if self.routed_by == "topic":
            return messages["topic"].cast(pa.string())
        return (
            rows[self.name].cast(pa.string())
            if self.routed_by == "column"
            else last_values(messages["headers"], self.name)
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
        self._messages = [0] * len(tables)

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        """Stages rows, after all tables have checked their rows."""
        if not rows.num_rows:
            return
        tables = self._router.rules_of(rows, messages)
        parts = parts_by_table(tables, rows, messages)
        for take in [
            self._ready(np.flatnonzero(tables == table), self._tables[table][1], *part)
            for table, *part in parts
        ]:
            take()
        for table, _, part_messages in parts:
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
            TableRows(name, staging.rows, messages, staging.checksum, staging.committables)
            for (name, _), staging, messages in zip(self._tables, done, self._messages, strict=True)
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
