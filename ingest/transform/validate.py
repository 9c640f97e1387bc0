"""The rules of the schema on rows that are already of their types: the last transform of a chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ingest.errors import SpecError
from ingest.ports.decoder import Decoded, Refusal
from ingest.schema.columns import Columns
from ingest.schema.load import built_of_model, import_pandera, model_now

if TYPE_CHECKING:
    from pandera.errors import SchemaError

ROW = "*"
"""Stands for the column of a check over whole rows."""


STAGE = "validate"


@dataclass(frozen=True)
class Validate:
    """The rules of a pandera model, and that its columns are what comes: a row that breaks one makes its message a dead letter.

    `reference` and `folder`: see `ingest.schema.load`.
    """

    reference: str
    folder: Path

    def columns(self, before: Columns) -> Columns:
        """The model's, with its descriptions and checks.

        Raises:
            SpecError: other columns come in; says how they differ.
        """
        wanted = Columns.of(model_now(self.reference, self.folder)[1])
        there, names = {c.name: c for c in before.columns}, [c.name for c in wanted.columns]
        wrong = [f"{name}: missing" for name in names if name not in there]
        wrong += [f"{name}: {there[name].type}, not in the schema" for name in there if name not in names]
        wrong += [f"{c.name}: {t.type}, by the schema {c.type}" for c in wanted.columns if (t := there.get(c.name)) and t.type != c.type]
        if not wrong and list(there) != names:
            wrong.append(f"they come in the order {', '.join(there)}, in the schema they stand as {', '.join(names)}")
        if wrong:
            what = f"The rows that come to the schema {self.reference} have other columns: " + "; ".join(wrong)
            raise SpecError(what, "spec", "Make the schema, or the transform before it, say the same; nothing was read.")
        return wanted

    def open(self) -> Callable[[Decoded], Decoded]:
        """See `ports.transform.Transform.open`. A thread's rules are kept until the schema's file changes."""
        return built_of_model(self, self.reference, self.folder, _Validator)


class _Validator:
    """What the recipe builds."""

    def __init__(self, model: type[Any]) -> None:
        self._rules = Rules(model)
        self._schema = Columns.of(model).arrow_schema

    def __call__(self, decoded: Decoded) -> Decoded:
        left = decoded.refused(STAGE, [*_nulls(decoded.rows, self._schema), *self._rules.failures(decoded.rows)])
        if left.rows.schema.equals(self._schema):
            return left
        return replace(left, rows=pa.RecordBatch.from_arrays(left.rows.columns, schema=self._schema))


def _nulls(rows: pa.RecordBatch, schema: pa.Schema) -> Iterator[Refusal]:
    """Nulls in columns that the model says have none. A decoder of the same model gives none, but a transform may."""
    for column, field in zip(rows.columns, schema, strict=True):
        if column.null_count and not field.nullable:
            yield Refusal(np.flatnonzero(column.is_null()), f"check:{field.name}:not_nullable", f"Failed not_nullable - at $.{field.name}")


class Rules:
    """All checks of a model, in its order: which rows fail which. pandera runs them; it doesn't look at types and nulls."""

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

    def failures(self, rows: pa.RecordBatch) -> list[Refusal]:
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
                found.append(Refusal(np.flatnonzero(failing), f"check:{column}:{_check_name(error)}", _check_text(error, column)))
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
