"""Finds the table of each row, whole columns at a time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError
from windrow.ingest.schema.messages import last_values

By = Literal["column", "header", "topic"]


class Rule(msgspec.Struct, frozen=True):
    """Rule of one table: its values, or a pattern (RE2) that matches a whole value."""

    values: tuple[str, ...] = ()
    pattern: str | None = None

    def is_readable(self) -> bool:
        """Returns whether RE2 accepts the pattern, by itself and in parentheses.

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
        """Mask of the texts, or bytes, that the rule takes; none of them is null."""
        if self.pattern is not None:
            taken = pc.match_substring_regex(texts, _anchored(self.pattern))
        else:
            values = pa.array([v.encode() for v in self.values], pa.binary())
            taken = pc.is_in(
                texts, values if pa.types.is_binary(texts.type) else values.cast(pa.string())
            )
        return np.asarray(taken.to_numpy(zero_copy_only=False), np.bool_)


class Router(msgspec.Struct, frozen=True):
    """Rules in their order; the first one that takes a row's value counts. Picklable.

    `by` says whether the value is that of a column, that of the last header with a name, or the
    topic. `name` is the column's or the header's.
    """

    by: By
    name: str
    rules: tuple[Rule, ...]

    def refuse_unfit(self, rows: pa.Schema) -> None:
        """Checks the rules against the columns of the rows.

        Raises:
            SpecError: there is no such column, or its type can't be used for routing.
        """
        if self.by != "column":
            return
        if self.name not in rows.names:
            what = f"sink.name is {self.name}, and no row has such a column"
            raise SpecError(what, "spec", f"Name one of {', '.join(rows.names)}.")
        kind = rows.field(self.name).type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            what = (
                f"sink.name is {self.name}, which is {kind}: rows go by text, integers or booleans"
            )
            raise SpecError(what, "spec", "Name another column, or make one of it in the schema.")

    def rules_of(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> npt.NDArray[np.intp]:
        """Index of each row's rule; for a row that no rule takes, the number of rules."""
        distinct = self._values(rows, messages).dictionary_encode()
        # the last one is for null
        rule_of = np.full(len(distinct.dictionary) + 1, len(self.rules), np.intp)
        for number, rule in reversed(list(enumerate(self.rules))):
            rule_of[:-1][rule.takes(distinct.dictionary)] = number
        chosen: npt.NDArray[np.intp] = rule_of[
            distinct.indices.cast(pa.int64()).fill_null(len(distinct.dictionary)).to_numpy()
        ]
        return chosen

    def _values(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> pa.Array:
        if self.by == "topic":
            return messages["topic"].cast(pa.string())
        return (
            rows[self.name].cast(pa.string())
            if self.by == "column"
            else last_values(messages["headers"], self.name)
        )


def _anchored(pattern: str) -> str:
    """The pattern with anchors, so that it matches whole values."""
    return f"^(?:{pattern})$"


def parts_by_table(
    tables: npt.NDArray[np.intp], rows: pa.RecordBatch, messages: pa.RecordBatch
) -> Sequence[tuple[int, pa.RecordBatch, pa.RecordBatch]]:
    """Splits rows and their messages by table; they keep their order."""
    used = np.unique(tables)
    if len(used) == 1:
        return [(int(used[0]), rows, messages)]
    index = [pa.array(np.flatnonzero(tables == table)) for table in used]
    return [
        (int(table), rows.take(mine), messages.take(mine))
        for table, mine in zip(used, index, strict=True)
    ]
