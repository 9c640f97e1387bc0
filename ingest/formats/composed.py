"""Decoder of rows whose columns come from several parts of a message.

The parts are the value, the key and headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import BugError, SpecError
from windrow.ingest.formats.shared.buffers import as_text
from windrow.ingest.formats.shared.decoded import nothing, together
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import (
    HEADER,
    KEY,
    Decode,
    Decoded,
    Decoder,
    Deletes,
    Ignored,
    Refusal,
    checked_verdict,
)
from windrow.ingest.ports.schema_registry import (
    OnSchema,
    PreparedDecoder,
    SchemaRegistry,
    UsesSchemas,
)
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.message_part import WHOLE, Part
from windrow.ingest.schema.messages import MESSAGES, last_values
from windrow.ingest.schema.user_code import ModelReference, load_model

_VALUE = MESSAGES.get_field_index("value")


@dataclass(frozen=True)
class ComposedDecoder:
    """Decodes all columns of a model, each from its part of the message.

    The key is decoded first, then the headers, then the value. The first part that
    refuses the message gives the reason. But if the value's decoder passes a message over, key
    and headers aren't judged.

    Attributes:
        model: the model.
        value: the decoder of the value.
        key: the decoder of the key. It is given messages whose values are their keys, and
            makes at most one row of each.
        fields: the names that the key's columns have in the model, in the order of the key
            decoder's columns. If the value has one of these columns too, both must be
            equal.
        headers: pairs of a column and the header that it comes from.
        part: the columns of the model that the value has.
        primary_key: the columns by which rows are deleted from the table; empty if no rows
            are deleted. If all of them come from the key, a message without a value
            deletes the row of its key, and its headers aren't read. Otherwise the value's
            decoder decides about such a message.
    """

    model: ModelReference
    value: Decoder
    key: Decoder | None = None
    fields: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    part: Part = WHOLE
    primary_key: tuple[str, ...] = ()

    @property
    def columns(self) -> Columns:
        """The model's columns.

        Raises:
            SpecError: the value's columns aren't its part of the model; key and value share
                a column that can't be compared; a header's column is neither String nor
                Binary, or has a path, codecs, aliases or a default.
            BugError: the key's format gives other columns than it was asked for.
        """
        all_columns = Columns.of(load_model(self.model))
        kinds = {column.name: column.type for column in all_columns.columns}
        resolved = {
            column.name
            for column in all_columns.columns
            if column.paths or column.codecs or column.aliases or column.default is not None
        }
        if self.key is not None and [column.type for column in self.key.columns.columns] != [
            kinds[name] for name in self.fields
        ]:
            raise BugError(
                "The key's format gives other columns than it was asked for",
                "spec",
                "Report a bug in the format.",
            )
        expected_types = {column.name: column.type for column in self.part.of(all_columns).columns}
        value_types = {column.name: column.type for column in self.value.columns.columns}
        problems = [
            *(
                f"{name}: the value doesn't have it"
                for name in expected_types.keys() - value_types.keys()
            ),
            *(
                f"{name}: the value has it, but it comes from elsewhere"
                for name in value_types.keys() - expected_types.keys()
            ),
            *(
                f"{name}: it is {value_types[name]} in the value, and {kind} in the schema"
                for name, kind in expected_types.items()
                if value_types.get(name, kind) != kind
            ),
            *(
                f"{name}: comes from the header {header}, so it must be String or Binary, not"
                f" {kinds[name]}"
                for name, header in self.headers
                if kinds[name] not in {pa.string(), pa.binary()}
            ),
            *(
                f"{name}: comes from the header {header}, for which metadata path, codecs,"
                " aliases and default can't be used"
                for name, header in self.headers
                if name in resolved
            ),
            *(
                f"{name}: comes from key and value, which must agree, but {kinds[name]} can't be"
                " compared: set fields_include: except_key"
                for name in self.fields
                if name in expected_types and pa.types.is_nested(kinds[name])
            ),
        ]
        if problems:
            raise SpecError(
                f"The columns of the schema {self.model} can't be put together: "
                + "; ".join(sorted(problems)),
                "spec",
                "Fix the schema, or what decode says of key and headers; nothing was read.",
            )
        return all_columns.with_rest() if self.part.keeps_unknown else all_columns

    def open(self) -> Decode:
        return self.open_reporting(lambda _schema, _requested: None)

    def asking(self, registry: SchemaRegistry) -> Decoder:
        key, value = (
            part.asking(registry) if isinstance(part, UsesSchemas) else part
            for part in (self.key, self.value)
        )
        return self if value is None else replace(self, key=key, value=value)

    def prepared(self, topics: Sequence[str]) -> PreparedDecoder:
        both: dict[str, object] = {"key": self.key, "value": self.value}
        parts = {
            name: part.prepared(topics)
            for name, part in both.items()
            if isinstance(part, UsesSchemas)
        }
        decoders: dict[str, Any] = {
            name: prepared_part.decoder for name, prepared_part in parts.items()
        }
        return PreparedDecoder(
            replace(self, **decoders),
            [schema for prepared_part in parts.values() for schema in prepared_part.schemas],
        )

    def with_schemas(self, schemas: Sequence[WriterSchema]) -> Decoder:
        key, value = (
            part.with_schemas(schemas) if isinstance(part, UsesSchemas) else part
            for part in (self.key, self.value)
        )
        return self if value is None else replace(self, key=key, value=value)

    def schema_ids(self, messages: pa.RecordBatch, stages: pa.StringArray) -> pa.StringArray:
        """Returns the schema id of each message, from the part that its stage names."""
        of_value = _schema_ids(self.value, messages, stages)
        if self.key is None:
            return of_value
        return pc.if_else(
            pc.equal(stages, KEY),
            _schema_ids(self.key, _keys_as_values(messages), stages),
            of_value,
        )

    def open_reporting(self, on_schema: OnSchema) -> Decode:
        schema = self.columns.arrow_schema
        of_value = self.value.columns.arrow_schema.names
        key = (
            None if self.key is None else _KeyDecoder(_open_part(self.key, on_schema), self.fields)
        )
        return _BatchComposer(
            schema, _open_part(self.value, on_schema), of_value, key, self.headers, self.primary_key
        ).decode


def _open_part(part: Decoder, on_schema: OnSchema) -> Decode:
    decode = part.open_reporting(on_schema) if isinstance(part, UsesSchemas) else part.open()
    return lambda messages: checked_verdict(part, decode(messages))


def _schema_ids(part: Decoder, messages: pa.RecordBatch, stages: pa.StringArray) -> pa.StringArray:
    return (
        part.schema_ids(messages, stages)
        if isinstance(part, UsesSchemas)
        else pa.nulls(messages.num_rows, pa.string())
    )


def _keys_as_values(messages: pa.RecordBatch) -> pa.RecordBatch:
    """Returns messages whose values are their keys, because a decoder reads only values."""
    return messages.set_column(_VALUE, MESSAGES.field(_VALUE), messages.column("key"))


@dataclass(frozen=True)
class _KeyDecoder:
    """Decodes keys.

    Attributes:
        decode: decodes messages whose values are their keys.
        fields: the model's names for the decoded columns.
    """

    decode: Decode
    fields: tuple[str, ...]

    def decode_keys(self, messages: pa.RecordBatch) -> Decoded:
        """Returns the verdict on each message, by its key alone."""
        decoded = self.decode(_keys_as_values(messages))
        if decoded.dropped or decoded.filtered or decoded.rows.num_rows != decoded.valid:
            raise BugError(
                "The decoder of the keys made no row of a key, or several",
                "decode",
                "Nothing was committed. Report a bug in the key's format.",
            )
        missing = messages.column("key").is_null().take(decoded.dead_index)
        nested_key_detail = pc.replace_substring(decoded.dead_detail, " - at ", " - at the key's ")
        whole_key_detail = pc.binary_join_element_wise(
            decoded.dead_detail, " - at the key", "", null_handling="skip"
        )
        detail = pc.if_else(
            pc.match_substring(decoded.dead_detail, " - at "), nested_key_detail, whole_key_detail
        )
        return replace(
            decoded,
            rows=pa.RecordBatch.from_arrays(decoded.rows.columns, list(self.fields)),
            dead_stage=pa.repeat(KEY, len(missing)),
            dead_reason=pc.if_else(
                missing, "key:null", pc.binary_join_element_wise("key:", decoded.dead_reason, "")
            ),
            dead_detail=pc.if_else(missing, "Expected a value, got none - at the key", detail),
            ignored=tuple(
                Ignored(part.index, partial(_fields_of_key, part.fields))
                for part in decoded.ignored
            ),
        )


def _fields_of_key(fields: Callable[[int], Iterable[str]], position: int) -> list[str]:
    return [f"key:{path}" for path in fields(position)]


class _BatchComposer:
    """Decodes batches of messages for a `ComposedDecoder`."""

    def __init__(
        self,
        schema: pa.Schema,
        value: Decode,
        of_value: Sequence[str],
        key: _KeyDecoder | None,
        headers: Sequence[tuple[str, str]],
        primary_key: Sequence[str],
    ) -> None:
        """Takes decoders that are open already.

        Args:
            schema: the schema of all columns.
            value: decodes the values.
            of_value: the columns that the value has.
            key: decodes the keys; None if no column comes from the key.
            headers: pairs of a column and the header that it comes from.
            primary_key: the columns by which rows are deleted; empty for none.
        """
        self._schema = schema
        self._value = value
        self._of_value = of_value
        self._key = key
        self._headers = headers
        self._primary_key = list(primary_key)
        self._of_key = bool(primary_key) and key is not None and set(primary_key) <= set(key.fields)

    def decode(self, messages: pa.RecordBatch) -> Decoded:
        """Returns the verdict on each message."""
        decoded_keys = (
            _all_of(messages.num_rows) if self._key is None else self._key.decode_keys(messages)
        )
        decoded_keys, tombstones = self._without_tombstones(decoded_keys, messages)
        decoded_keys = self._with_headers(decoded_keys, messages)
        decoded_keys = self._with_passed_over(decoded_keys, messages)
        is_full_batch = len(decoded_keys.row_index) == messages.num_rows
        decoded_values = self._with_keys(
            self._value(messages if is_full_batch else messages.take(decoded_keys.row_index)),
            decoded_keys.rows,
        )
        made_from = decoded_values.row_index.to_numpy()
        other_columns = (
            decoded_keys.rows
            if _is_range(made_from, decoded_keys.rows.num_rows)
            else decoded_keys.rows.take(decoded_values.row_index)
        )
        columns = {
            **dict(zip(other_columns.schema.names, other_columns.columns, strict=True)),
            **dict(zip(self._of_value, decoded_values.rows.columns, strict=True)),
        }
        rows = pa.RecordBatch.from_arrays(
            [columns[name] for name in self._schema.names], schema=self._schema
        )
        refused = (
            decoded_values if is_full_batch else decoded_values.renumber(decoded_keys.row_index)
        )
        keyless = replace(
            decoded_keys, rows=rows.slice(0, 0), row_index=decoded_keys.row_index.slice(0, 0)
        )
        composed = replace(
            together(self._schema, [replace(refused, rows=rows), keyless]),
            deletes=_merged_deletes(tombstones, refused.deletes),
        )
        return composed.refused(
            KEY, list(self._find_disagreements(other_columns, decoded_values.rows))
        )

    def _without_tombstones(
        self, decoded_keys: Decoded, messages: pa.RecordBatch
    ) -> tuple[Decoded, Deletes | None]:
        """Splits off the messages without a value.

        Returns:
            The verdict on the other messages, and the deletes of the messages without a
            value. The deletes are None if the key doesn't have the whole primary key.
        """
        if not self._of_key:
            return decoded_keys, None
        empty = (
            messages.column("value")
            .is_null()
            .take(decoded_keys.row_index)
            .to_numpy(zero_copy_only=False)
        )
        deletes = Deletes(
            decoded_keys.rows.select(self._primary_key), decoded_keys.row_index
        ).filter(empty)
        has_value = pa.array(~empty)
        return (
            replace(
                decoded_keys,
                rows=decoded_keys.rows.filter(has_value),
                row_index=decoded_keys.row_index.filter(has_value),
            ),
            deletes,
        )

    def _with_passed_over(self, decoded_keys: Decoded, messages: pa.RecordBatch) -> Decoded:
        """Leaves refused messages to the value's decoder that are of another record or table.

        Their keys and headers may have another form.
        """
        refused = decoded_keys.dead_index
        if not len(refused):
            return decoded_keys
        values = self._value(messages.take(refused))
        is_own = pc.not_equal(values.dead_reason, "other_record")
        judged = [values.row_index, values.dead_index.filter(is_own)]
        judged += [] if values.deletes is None else [values.deletes.index]
        mask = messages["value"].is_valid().take(refused).to_numpy(zero_copy_only=False).copy()
        mask[pa.concat_arrays(judged)] = False
        passed_over, kinds = refused.filter(pa.array(mask)), decoded_keys.rows.schema
        empty_rows = [pa.nulls(len(passed_over), kind.type) for kind in kinds]
        rows = pa.RecordBatch.from_arrays(empty_rows, schema=kinds)
        part = replace(nothing(kinds), rows=rows, row_index=passed_over)
        return together(kinds, [decoded_keys.without(passed_over.to_numpy()), part])

    def _with_keys(self, decoded_values: Decoded, other_columns: pa.RecordBatch) -> Decoded:
        """Completes the primary keys in the value's deletes.

        Columns that the value doesn't have are taken from the message's key.
        """
        if (
            decoded_values.deletes is None
            or decoded_values.deletes.keys.schema.names == self._primary_key
        ):
            return decoded_values
        keys, index = decoded_values.deletes.keys, decoded_values.deletes.index
        columns = [
            keys.column(n) if n in keys.schema.names else other_columns.column(n).take(index)
            for n in self._primary_key
        ]
        return replace(
            decoded_values,
            deletes=Deletes(pa.RecordBatch.from_arrays(columns, self._primary_key), index),
        )

    def _with_headers(self, decoded_keys: Decoded, messages: pa.RecordBatch) -> Decoded:
        """Adds a column for each header.

        Refuses messages that lack a header whose column isn't nullable, and headers
        that aren't UTF-8 where the column is a String.
        """
        columns, refusals = list(decoded_keys.rows.columns), []
        headers = messages.column("headers")
        for name, header in self._headers:
            field = self._schema.field(name)
            values = last_values(headers, header).take(decoded_keys.row_index)
            column, invalid_mask = (
                as_text(values)
                if field.type == pa.string()
                else (values, np.zeros(len(values), np.bool_))
            )
            refusals.append(
                Refusal(
                    np.flatnonzero(invalid_mask),
                    "header:invalid_utf8",
                    f"Expected UTF-8 - at the header {header}",
                )
            )
            if not field.nullable:
                missing = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
                refusals.append(
                    Refusal(
                        missing,
                        "header:missing",
                        f"Expected a value, got none - at the header {header}",
                    )
                )
            columns.append(column)
        if not self._headers:
            return decoded_keys
        names = [*decoded_keys.rows.schema.names, *(name for name, _ in self._headers)]
        return replace(decoded_keys, rows=pa.RecordBatch.from_arrays(columns, names)).refused(
            HEADER, refusals
        )

    def _find_disagreements(
        self, other_columns: pa.RecordBatch, of_value: pa.RecordBatch
    ) -> list[Refusal]:
        """Returns the rows whose key and value differ in a column that both have."""
        both = (
            []
            if self._key is None
            else [name for name in self._key.fields if name in self._of_value]
        )
        return [
            Refusal(
                _find_differences(
                    other_columns.column(name), of_value.column(self._of_value.index(name))
                ),
                "key:differs",
                f"Expected the same as in the value - at the key's $.{name}",
            )
            for name in both
        ]


def _all_of(count: int) -> Decoded:
    """Returns a verdict that takes each of `count` messages, as rows without columns."""
    return replace(nothing(pa.schema([])), row_index=pa.array(np.arange(count, dtype=np.int64)))


def _merged_deletes(tombstones: Deletes | None, of_value: Deletes | None) -> Deletes | None:
    if tombstones is None or of_value is None:
        return of_value if tombstones is None else tombstones
    return tombstones.merge(of_value)


def _is_range(index: npt.NDArray[np.int64], count: int) -> bool:
    """Returns whether an index is 0, 1, ..., count - 1."""
    return len(index) == count and (
        not count or bool((index[1:] == index[:-1] + 1).all() and index[0] == 0)
    )


def _find_differences(first_column: pa.Array, second_column: pa.Array) -> npt.NDArray[np.intp]:
    """Returns the positions at which two columns differ; null equals only null."""
    is_unequal = pc.fill_null(pc.not_equal(first_column, second_column), False).to_numpy(
        zero_copy_only=False
    )
    one_null = pc.not_equal(first_column.is_null(), second_column.is_null()).to_numpy(
        zero_copy_only=False
    )
    return np.flatnonzero(is_unequal | one_null)
