"""The model's checks on rows that are already of their types: which rows fail which check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ingest.errors import SpecError
from ingest.schema.load import import_pandera

if TYPE_CHECKING:
    from pandera.errors import SchemaError

ROW = "*"
"""Stands for the column of a check over whole rows."""


@dataclass(frozen=True)
class Failure:
    """The rows (by position, ascending) whose first failed check this is. `detail`: the check with its own parameters, no values."""

    rows: npt.NDArray[np.intp]
    reason: str
    detail: str


class Rules:
    """All checks of a model, in its order. pandera runs them; types and nulls are not looked at again: the decoder has assured them."""

    def __init__(self, model: type[Any]) -> None:
        pandera = import_pandera()
        schema = model.to_schema()
        self._aliases = _aliases(list(schema.columns))
        columns = {
            self._aliases.get(name, name): pandera.Column(None, checks=c.checks, nullable=True)
            for name, c in schema.columns.items()
            if c.checks
        }
        self._name = model.__name__
        of_columns = pandera.DataFrameSchema(columns) if columns else None
        of_rows = pandera.DataFrameSchema(checks=schema.checks) if schema.checks else None
        if not self._aliases and columns and schema.checks:  # the usual case, in one pass
            of_columns, of_rows = pandera.DataFrameSchema(columns, checks=schema.checks), None
        self._of_columns, self._of_rows = of_columns, of_rows

    def failures(self, rows: pa.RecordBatch) -> list[Failure]:
        """Each failing row once, under the first check that it fails.

        Raises:
            SpecError: if a check fails as a whole: it raised an exception, or gave something else than one verdict per row.
        """
        if (self._of_columns is None and self._of_rows is None) or not rows.num_rows:
            return []
        names = {alias: name for name, alias in self._aliases.items()}
        seen = np.zeros(rows.num_rows, dtype=np.bool_)
        found = []
        for error in self._errors(_frame(rows)):
            failing = self._failing(error, rows.num_rows) & ~seen
            seen |= failing
            if failing.any():
                column = ROW if hasattr(error.schema, "columns") else names.get(str(error.schema.name), str(error.schema.name))
                found.append(Failure(np.flatnonzero(failing), f"check:{column}:{_check_name(error)}", _check_text(error, column)))
        return found

    def _errors(self, frame: pl.DataFrame) -> Iterator[SchemaError]:
        """pandera's complaints: of columns, then of whole rows, which are judged under the names that the model gives."""
        if self._of_columns is not None:
            yield from _complaints(self._of_columns, frame.rename(self._aliases) if self._aliases else frame)
        if self._of_rows is not None:
            yield from _complaints(self._of_rows, frame)

    def _failing(self, error: SchemaError, rows: int) -> npt.NDArray[np.bool_]:
        output = error.check_output
        if not isinstance(output, pl.DataFrame) or output.height != rows or output.width != 1:
            why = _crash(error) if output is None else "it must give one verdict per row, whatever the other rows of the batch are"
            what = f"The check {_check_name(error)} of {self._name} failed as a whole: {why}"
            raise SpecError(what, "validate", "Mend the schema and run again.")
        return ~output.to_series().fill_null(value=True).to_numpy()  # a null verdict passes, as it does in pandera


def _aliases(names: list[str]) -> dict[str, str]:
    """Other names, in checks of columns, for those that polars takes for a pattern: a check of `*` would judge every column."""
    patterns = [name for name in names if name == "*" or (name.startswith("^") and name.endswith("$"))]
    free = (alias for i in count() if (alias := f"column_{i}") not in names)
    return dict(zip(patterns, free, strict=False))


def _complaints(schema: Any, frame: pl.DataFrame) -> list[SchemaError]:
    """What pandera says. Its own environment variables could switch checks off: what is said here wins."""
    from pandera.config import ValidationDepth, config_context  # noqa: PLC0415  # only ever after import_pandera
    from pandera.errors import SchemaErrors  # noqa: PLC0415

    try:
        with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
            schema.validate(frame, lazy=True)
    except SchemaErrors as errors:
        return list(errors.schema_errors)
    return []


def _frame(rows: pa.RecordBatch) -> pl.DataFrame:
    """The rows as polars sees them, maps as the lists of key/value structs that the model declares."""
    arrays = [a.cast(_as_list(a.type)) if pa.types.is_map(a.type) else a for a in rows.columns]
    frame = pl.from_arrow(pa.Table.from_arrays(arrays, names=rows.schema.names))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _as_list(kind: pa.MapType) -> pa.DataType:
    return pa.list_(pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]))


def _crash(error: SchemaError) -> str:
    """The type of what a check raised; its text may hold values."""
    cause = error.__cause__ or error.__context__
    return f"it raised {type(cause).__name__}" if cause is not None else f"pandera says {error.reason_code}"


def _check_name(error: SchemaError) -> str:
    check = error.check
    if isinstance(check, str) or check is None:
        return str(check)
    return str(check.name or f"check_{error.check_index}")


def _check_text(error: SchemaError, column: str) -> str:
    check = error.check
    text = getattr(check, "error", None) or _check_name(error)
    return f"Failed {text} - at $" + ("" if column == ROW else f".{column}")
