"""Decoder of change messages: rows, deletes and dead letters."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.cdc.arrays import merge_leaves, select_rows
from windrow.ingest.formats.cdc.change_metadata import EVERYTHING, ChangeMetadata, Included
from windrow.ingest.formats.cdc.envelope import ChangeKind, Envelope
from windrow.ingest.formats.cdc.row_images import RowImage
from windrow.ingest.formats.cdc.unavailable import NOT_SENT, Unavailable
from windrow.ingest.formats.row_decoder import Encoding, OnNull
from windrow.ingest.formats.shared.decoded import nothing, together
from windrow.ingest.formats.shared.nesting import nest_columns, path_text
from windrow.ingest.ports.decoder import SCHEMA, Decode, Decoded, Deletes, Refusal
from windrow.ingest.schema.columns import REST, Column, Columns
from windrow.ingest.schema.message_fields import FieldPath
from windrow.ingest.schema.message_part import WHOLE, Part
from windrow.ingest.schema.user_code import ModelReference, built_of_model, load_model


class EventEncoding(Encoding, Protocol):
    """Encoding of change events."""

    def field_names(self, value: bytes, root: FieldPath) -> AbstractSet[str]:
        """Returns the names of a message's fields at a path; empty if it has no fields there."""


@dataclass(frozen=True)
class ChangeDecoder:
    """Decodes messages with an envelope to the columns of a pandera model.

    Each change of a row becomes a row, or a delete.

    Attributes:
        model: the model.
        inner: the encoding of the messages.
        envelope: the tool's envelope.
        root: the path of the envelope in the message.
        on_null: whether a message without a value is only counted, or is a dead letter.
        part: the columns of the model that the messages hold.
        of_envelope: pairs of a column of `part` that isn't in the row, and its path in the
            envelope.
        included: the tables whose rows are wanted.
        primary_key: the columns by which rows are deleted from the table. None if no rows
            are deleted, as in an append-only table. Then a deletion becomes a row with the
            deleted values.
        unavailable: what happens to values that a change left unchanged and that the
            message doesn't have. None for `keep` if `keeps_unavailable` is true, else for `dead`.
        keeps_unavailable: whether the table can keep its own values for unchanged values.
    """

    model: ModelReference
    inner: EventEncoding
    envelope: Envelope
    root: FieldPath = ()
    on_null: OnNull = "drop"
    part: Part = WHOLE
    of_envelope: tuple[tuple[str, FieldPath], ...] = ()
    included: Included = EVERYTHING
    primary_key: tuple[str, ...] | None = None
    unavailable: Unavailable | None = None
    keeps_unavailable: bool = False

    @property
    def columns(self) -> Columns:
        columns = self.columns_of(load_model(self.model))
        self.included.check()
        if self.unavailable == "keep" and not self.keeps_unavailable:
            raise SpecError(
                "decode.unavailable: keep needs a table whose rows can keep what a change leaves"
                " alone, and this one can't",
                "spec",
                "Take dead or null; or a table of Delta or PostgreSQL with a key, without version"
                " and transform. Nothing was read.",
            )
        inner = self.inner.now()
        metadata = replace(self, inner=inner).metadata()
        images = [
            image.wanted_columns
            for image in (self.written_image(columns), self.removed_image(columns))
            if image is not None
        ]
        for wanted_columns in [nest_columns(metadata.leaves), *images]:
            inner.check(wanted_columns)
        return columns

    def open(self) -> Decode:
        """Opens the decoder for this thread.

        The opened decoder is kept until a file of the model or of the encoding changes.
        """
        decoder = replace(self, inner=self.inner.now())
        return built_of_model(
            decoder,
            self.model,
            lambda model: ChangeBatchDecoder(decoder, decoder.columns_of(model)),
        ).decode

    def with_deletes(
        self, primary_key: tuple[str, ...], *, keeps_unavailable: bool
    ) -> ChangeDecoder:
        return replace(self, primary_key=primary_key, keeps_unavailable=keeps_unavailable)

    def metadata(self) -> ChangeMetadata:
        """Makes the decoder of the messages' metadata."""
        patterns = self.included.patterns
        names = {
            name: path
            for name, path in self.envelope.names
            if name in patterns or self._may_have((*self.root, *path))
        }
        deleted = () if self.envelope.deleted is None else ((self.envelope.deleted,),)
        kinds = [
            (*self.root, *path)
            for path in (self.envelope.kind, *deleted)
            if not self.envelope.is_flat or self._may_have((*self.root, *path))
        ]
        return ChangeMetadata(
            self.envelope, self.root, self.included, names, kinds, self.inner.field_names
        )

    def _may_have(self, path: FieldPath) -> bool:
        """Returns whether messages may have a text at a path."""
        try:
            self.inner.check(nest_columns([(path, Column("", pa.string(), nullable=True))]))
        except SpecError:
            return False
        return True

    def written_image(self, columns: Columns) -> RowImage:
        """Returns the row image of an insert or an update."""
        return RowImage(
            self._path(self.envelope.written),
            columns,
            self.envelope.has_row_list,
            self._of_envelope(columns),
            self._path(self.envelope.former),
            self.primary_key or (),
            self._unavailable,
            self.envelope.is_flat,
        )

    def _path(self, field: str) -> FieldPath:
        """Returns the path of a field of the envelope; of the envelope itself for ""."""
        return (*self.root, field) if field else self.root

    def removed_image(self, columns: Columns) -> RowImage | None:
        """Returns the row image of a deletion; None if all its columns come from the message's key.

        If the table has a primary key, only the columns of the primary key are read.
        """
        if self.primary_key is not None:
            by_name = {column.name: column for column in columns.columns}
            key = tuple(by_name[name] for name in self.primary_key)
            columns = replace(columns, columns=key, row_path=None)
        if not columns.columns:
            return None
        unavailable = self._unavailable
        unavailable = "dead" if unavailable == "keep" else unavailable
        return RowImage(
            self._path(self.envelope.removed),
            columns,
            self.envelope.has_row_list,
            self._of_envelope(columns),
            unavailable=unavailable,
            is_flat=self.envelope.is_flat,
        )

    @property
    def _unavailable(self) -> Unavailable | None:
        """Treatment of values that a change left unchanged; None if the tool doesn't mark them."""
        return (
            None
            if not self.envelope.leaves_alone
            else self.unavailable or ("keep" if self.keeps_unavailable else "dead")
        )

    def columns_of(self, model: type[Any]) -> Columns:
        """Returns the columns of a model, checked against the spec.

        Raises:
            SpecError: the model lacks a column that the spec names, no column of the primary
                key comes from the row, or a field of the row is a column twice.
        """
        columns = self.part.of(Columns.of(model))
        of_envelope = dict(self.of_envelope)
        if self.envelope.text_row and {column.name for column in columns.columns} == {*of_envelope}:
            return columns
        of_row = Part(without=tuple(of_envelope), setting="decode.envelope").of(columns)
        rows = (
            {column.name for column in of_row.columns}
            if self.envelope.is_flat
            else {self.envelope.written, self.envelope.removed, self.envelope.former}
        )
        twice = [".".join(path) for path in of_envelope.values() if path[0] in rows]
        if twice:
            raise SpecError(
                f"decode.envelope takes {', '.join(twice)} from the row, whose fields are columns"
                " by their names",
                "spec",
                "Leave it out there, and give the schema a column of the field's own name; nothing"
                " was read.",
            )
        if self.primary_key and not {column.name for column in of_row.columns} & set(
            self.primary_key
        ):
            raise SpecError(
                f"The primary key has no column of the changed row: {', '.join(self.primary_key)}"
                " come from the envelope",
                "spec",
                "Name a column of the row in it; nothing was read.",
            )
        return columns

    def _of_envelope(self, columns: Columns) -> tuple[tuple[str, FieldPath], ...]:
        """Returns the columns that the envelope has, each with its path in the message."""
        names = {column.name for column in columns.columns}
        of_envelope = tuple(
            (name, (*self.root, *path)) for name, path in self.of_envelope if name in names
        )
        return (*of_envelope, (REST, (REST,))) if REST in names else of_envelope


class ChangeBatchDecoder:
    """Decodes batches for a `ChangeDecoder`. Only one thread may use it at a time.

    Nearly all messages are decoded once, to the columns of the metadata and of a written row
    together. A message that this refuses is decoded again, in two steps: its metadata, then
    its row. So a message that changes no row, or a row of another table, is never refused
    because of the columns. Deletions also have a second step.
    """

    def __init__(self, decoder: ChangeDecoder, columns: Columns) -> None:
        self._schema, self._key, self._text_row = (
            columns.arrow_schema,
            decoder.primary_key,
            decoder.envelope.text_row,
        )
        self._metadata, self._written, self._removed = (
            decoder.metadata(),
            decoder.written_image(columns),
            decoder.removed_image(columns),
        )
        self._inner, self._on_null = decoder.inner, decoder.on_null
        leaves = merge_leaves(self._metadata.leaves, self._written.leaves)
        self._decode_both = (
            None if leaves is None else _opened_for(self._inner, self._written.nest(leaves))
        )

    @cached_property
    def _decode_metadata(self) -> Decode:
        return _opened_for(self._inner, nest_columns(self._metadata.leaves), self._on_null)

    @cached_property
    def _decode_written(self) -> Decode:
        return _opened_for(self._inner, self._written.wanted_columns)

    @cached_property
    def _decode_removed(self) -> Decode:
        assert self._removed is not None  # else no message is decoded for its deletes
        return _opened_for(self._inner, self._removed.wanted_columns)

    def decode(self, messages: pa.RecordBatch) -> Decoded:
        """Returns the verdict on each message."""
        if self._decode_both is None:
            decoded = self._decode_in_steps(messages)
        else:
            both = self._decode_both(messages)
            in_steps = both.dead_index.to_numpy()
            decoded = self._split(
                select_rows(both, np.ones(both.rows.num_rows, np.bool_)), messages
            )
            if len(in_steps):
                again = _decoded_part(messages, in_steps, self._decode_in_steps)
                decoded = together(self._schema, [decoded, again], self._key)
        return (
            decoded
            if self._text_row is None or not len(decoded.dead_index)
            else replace(decoded, dead_detail=self._explain(decoded.dead_detail))
        )

    def _split(self, both: Decoded, messages: pa.RecordBatch) -> Decoded:
        """Returns the verdict on messages whose metadata and written rows are decoded."""
        metadata, changes = self._metadata.classify(lambda _: both, messages)
        written = select_rows(metadata, changes != ChangeKind.REMOVED)
        return self._by_kind(
            metadata, changes, messages, self._written.rows(lambda _: written, messages)
        )

    def _decode_in_steps(self, messages: pa.RecordBatch) -> Decoded:
        metadata, changes = self._metadata.classify(self._decode_metadata, messages)
        written = _decoded_part(
            messages,
            metadata.row_index.to_numpy()[changes != ChangeKind.REMOVED],
            lambda written_messages: self._written.rows(self._decode_written, written_messages),
        )
        return self._by_kind(metadata, changes, messages, written)

    def _by_kind(
        self,
        metadata: Decoded,
        changes: npt.NDArray[np.int8],
        messages: pa.RecordBatch,
        written: Decoded,
    ) -> Decoded:
        """Joins the verdicts on messages by their kinds of change.

        Args:
            metadata: the verdict by the metadata.
            changes: the kind of change of each of its rows.
            messages: the messages.
            written: the verdict on the messages that write a row.
        """
        index = metadata.row_index.to_numpy()
        counts = replace(
            metadata,
            rows=metadata.rows.slice(0, 0),
            row_index=metadata.row_index.slice(0, 0),
            cut=metadata.cut[:0],
            ignored=(),
        )
        written = self._without_new(written, index[changes == ChangeKind.UPDATED])
        removed = _decoded_part(messages, index[changes == ChangeKind.REMOVED], self._rows_removed)
        return together(self._schema, [counts, written, removed], self._key)

    def _without_new(self, written: Decoded, updated: npt.NDArray[np.int64]) -> Decoded:
        """Refuses messages with unavailable values whose row is new in the table.

        A row is new if the message inserts it, or if an update changes its key. The table
        has no old values for a new row.
        """
        if written.unavailable is None:
            return written
        index, moved_index = (
            written.row_index.to_numpy(),
            (
                np.zeros(0, np.int64)
                if written.deletes is None
                else written.deletes.index.to_numpy()
            ),
        )
        has_unavailable = pc.greater(pc.list_value_length(written.unavailable), 0).to_numpy(
            zero_copy_only=False
        )
        new_rows = np.flatnonzero(
            has_unavailable & (~np.isin(index, updated) | np.isin(index, moved_index))
        )
        message = f"{NOT_SENT}, and the row is new by its key - at {path_text(self._written.path)}"
        return written.refused(SCHEMA, [Refusal(new_rows, "unavailable", message)])

    def _explain(self, details: pa.StringArray) -> pa.StringArray:
        """Returns the details of dead letters, with the envelope's `text_row` for texts as rows."""
        for image in (self._written, self._removed):
            if image is not None:
                path = path_text(image.path)
                details = pc.if_else(
                    pc.equal(details, f"Expected object, got str - at {path}"),
                    f"{self._text_row} - at {path}",
                    details,
                )
        return details

    def _rows_removed(self, messages: pa.RecordBatch) -> Decoded:
        """Decodes deletions to rows if the table is append-only, else to deletes."""
        if self._removed is None:
            return _only_deletes(messages.num_rows)
        rows = self._removed.rows(self._decode_removed, messages)
        if self._key is None:
            return rows
        return replace(
            rows,
            rows=rows.rows.slice(0, 0),
            row_index=rows.row_index.slice(0, 0),
            deletes=Deletes(rows.rows, rows.row_index),
        )


def _opened_for(encoding: Encoding, columns: Columns, on_null: OnNull = "dead") -> Decode:
    decode = encoding.open(columns)
    return lambda messages: decode(messages.column("value"), on_null)


def _decoded_part(
    messages: pa.RecordBatch, index: npt.NDArray[np.int64], decode: Decode
) -> Decoded:
    """Returns the verdict on some of the messages, by their positions."""
    if len(index) == messages.num_rows:
        return decode(messages)
    if not len(index):
        return nothing(pa.schema([]))
    numbers = pa.array(index, pa.int64())
    return decode(messages.take(numbers)).renumber(numbers)


def _only_deletes(count: int) -> Decoded:
    """Returns a verdict by which each of `count` messages deletes the row of its own key."""
    none = nothing(pa.schema([]))
    return replace(none, deletes=Deletes(none.rows, pa.array(np.arange(count, dtype=np.int64))))
