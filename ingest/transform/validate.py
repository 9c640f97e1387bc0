"""The last transform of a chain: it checks the rules of the schema.

The rows already have the schema's types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.ports.decoder import RULES, Decoded, Refusal
from windrow.ingest.ports.transform import Apply
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.user_code import ModelReference, built_of_model, load_model
from windrow.ingest.transform.rules import Rules


@dataclass(frozen=True)
class Validate:
    """A transform that checks columns and rows against a pandera model.

    A row that breaks a rule makes its message a dead letter.
    """

    model: ModelReference

    def columns(self, input_columns: Columns) -> Columns:
        """Returns the model's columns, with descriptions and checks.

        Raises:
            SpecError: the input columns differ from the model's; the text says how.
        """
        model_columns = Columns.of(load_model(self.model))
        column_by_name, names = (
            {c.name: c for c in input_columns.columns},
            [c.name for c in model_columns.columns],
        )
        mistakes = [f"{name}: missing" for name in names if name not in column_by_name]
        mistakes += [
            f"{name}: {column_by_name[name].type}, not in the schema"
            for name in column_by_name
            if name not in names
        ]
        mistakes += [
            f"{c.name}: {t.type}, by the schema {c.type}"
            for c in model_columns.columns
            if (t := column_by_name.get(c.name)) and t.type != c.type
        ]
        if not mistakes and list(column_by_name) != names:
            mistakes.append(
                f"they come in the order {', '.join(column_by_name)}, in the schema they are"
                f" {', '.join(names)}"
            )
        if mistakes:
            raise SpecError(
                f"The rows that come to the schema {self.model} have other columns: "
                + "; ".join(mistakes),
                "spec",
                "Make the schema, or the transform before it, say the same; nothing was read.",
            )
        return model_columns

    def open(self) -> Apply:
        """Makes the rules for this thread.

        The rules are kept until the schema's file changes.
        """
        return built_of_model(self, self.model, _Validator)


class _Validator:
    """The check of batches, in a worker."""

    def __init__(self, model: type[Any]) -> None:
        self._rules = Rules(model)
        self._schema = Columns.of(model).arrow_schema

    def __call__(self, decoded: Decoded, _messages: pa.RecordBatch) -> Decoded:
        validated = decoded.refused(
            RULES, [*_nulls(decoded.rows, self._schema), *self._rules.failures(decoded.rows)]
        )
        if validated.rows.schema.equals(self._schema):
            return validated
        return replace(
            validated, rows=pa.RecordBatch.from_arrays(validated.rows.columns, schema=self._schema)
        )


def _nulls(rows: pa.RecordBatch, schema: pa.Schema) -> Iterator[Refusal]:
    """Yields refusals for nulls in columns that aren't nullable in the model.

    A decoder of the same model gives no such nulls, but a transform may. NaN in a column of
    floats counts as null, as in pandera.
    """
    for column, field in zip(rows.columns, schema, strict=True):
        floating = pa.types.is_floating(field.type)
        if field.nullable or not (floating or column.null_count):
            continue
        nulls = column.is_null(nan_is_null=floating)
        if nulls.true_count:
            yield Refusal(
                np.flatnonzero(nulls),
                f"check:{field.name}:not_nullable",
                f"Failed not_nullable{', which takes no NaN' * floating} - at $.{field.name}",
            )
