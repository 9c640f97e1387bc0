"""Decoder of messages that name the schemas they were written with.

`ConfluentDecoder` holds the settings of a spec and the schemas that the driver got from the
registry. Opening it makes a `FramedBatchDecoder`, which decodes a batch in three steps:

1. It groups the messages by their frames.
2. It decodes each group with the batch decoder for the group's frame.
3. It sorts the rows by message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import BugError, RefusedError, SpecError
from windrow.ingest.formats.codec_decoder import decode_opened
from windrow.ingest.formats.confluent.frame import (
    NAMELESS,
    NULL,
    Frame,
    branches_of,
    frames_of,
    open_frame,
    schema_ids,
)
from windrow.ingest.formats.confluent.record_names import (
    OneOfSeveral,
    OtherRecord,
    RecordDecoder,
    WrittenWith,
    record_of_subjects,
)
from windrow.ingest.formats.row_decoder import OnNull
from windrow.ingest.formats.shared.decoded import refuse_all, together
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import SCHEMA, VALUE, Decode, Decoded
from windrow.ingest.ports.schema_registry import OnSchema, PreparedDecoder, SchemaRegistry
from windrow.ingest.registry.client import Subjects
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.message_part import WHOLE, Part
from windrow.ingest.schema.user_code import ModelReference, built_of_model, load_model

UnknownId = Literal["fail", "dead"]
OtherRecords = Literal["dead", "filter"]

KEPT_DECODERS = 32
"""Number of batch decoders that a thread keeps; a decoder that was dropped is made again."""
_MOST_UNKNOWN = 1000
"""Limit of schema ids in a split that the registry doesn't know.

If there are more, the topic is most likely in another format.
"""
LONGEST_REASON = 300
"""Limit of the characters in a dead letter's detail that say why a schema can't be used."""

MOST_VERSIONS = 100
"""Number of a subject's newest versions that the registry is asked for when a window is planned.

The registry is asked for an older version when a message names its schema.
"""


class Payloads(Protocol):
    """Kind of the payloads after the frames. It is picklable."""

    @property
    def kind(self) -> str | None:
        """Kind of the payloads' schemas; None if the payloads are decoded without a schema."""

    @property
    def paths(self) -> bool:
        """Whether frames have a path."""

    @property
    def has_row_record(self) -> bool:
        """Whether a row is known by the name of its record."""

    def check(self, columns: Columns, /) -> None:
        """Refuses columns that can't be read from any schema.

        Raises:
            SpecError: names each such column, or says which package isn't installed.
        """

    def records(self, schema: WriterSchema, /) -> list[frozenset[str]]:
        """Returns the names of each record that a message of the schema may have.

        The names are without namespaces.

        Raises:
            SpecError: the schema can't be used.
        """

    def misfits(
        self, schema: WriterSchema, path: Sequence[int], columns: Columns, document: Any
    ) -> dict[str, str]:
        """Returns why columns can't be read from the schema's fields of their names, by name.

        Columns without a field are left out.

        Args:
            schema: the schema.
            path: the path of the message in a Protobuf schema.
            columns: the columns.
            document: a document with all fields of a JSON Schema; payloads in JSON are
                checked by it.

        Raises:
            SpecError: the schema can't be used.
        """

    def batch_decoder(
        self, schema: WriterSchema | None, frame: Frame, columns: Columns, records: Sequence[str]
    ) -> RecordDecoder | OtherRecord | OneOfSeveral:
        """Makes the decoder of messages with this frame.

        If the schema is a union of records, and the frame has no path, the result is
        `OneOfSeveral`. The caller then calls this method for each record, with the number
        of the record as the path.

        Args:
            schema: the schema that the frame names; None if the payloads need no schema.
            frame: the frame.
            columns: the columns to read.
            records: the names of the records that are rows; empty if they aren't known.

        Raises:
            SpecError: the columns can't be read from the schema.
        """


@dataclass(frozen=True)
class ConfluentDecoder:
    """Decodes messages in one of Confluent's wire formats, one row each.

    Attributes:
        model: the pandera model that has the columns.
        payloads: the kind of the payloads.
        subjects: the subjects of the payloads' schemas.
        on_null: whether a message without a value is a dead letter, or is only counted.
        unknown_id: "fail" refuses the window if the registry doesn't know a schema id;
            "dead" refuses only the message.
        part: the columns of the model that are read from these messages.
        records: the names of the records that are rows; if empty, they are the records that
            the subjects' schemas have in common.
        other_records: whether messages of other records are dead letters, or are only
            counted.
        written_with: pairs of a column and the property of the writer's schema that the
            column gets.
        registry: the registry to ask for schemas; None until `asking` is called.
        known_schemas: schemas that the registry needn't be asked for.
    """

    model: ModelReference
    payloads: Payloads
    subjects: Subjects
    on_null: OnNull = "dead"
    unknown_id: UnknownId = "dead"
    part: Part = WHOLE
    records: tuple[str, ...] = ()
    other_records: OtherRecords = "dead"
    written_with: tuple[tuple[str, WrittenWith], ...] = ()
    registry: SchemaRegistry | None = None
    known_schemas: tuple[WriterSchema, ...] = ()

    @property
    def deletes_by(self) -> tuple[str, ...] | None:
        """Columns of the value in the primary key of deletes; None if nothing is deleted."""
        return None

    @property
    def columns(self) -> Columns:
        columns = self.part.of(Columns.of(load_model(self.model)))
        self.payloads.check(columns)
        texts = {
            c.name
            for c in columns.columns
            if c.type == pa.string() and not c.aliases and c.default is None
        }
        unusable_names = [name for name, _ in self.written_with if name not in texts]
        if unusable_names:
            raise SpecError(
                f"decode.written_with names {', '.join(unusable_names)}: the schema has no such"
                " String column without aliases and without a default",
                "spec",
                "Add it to the schema, or take it out of decode.written_with; nothing was read.",
            )
        if self.written_with and len(columns.columns) == len(self.written_with):
            raise SpecError(
                "decode.written_with names all columns of the value: none is left for the fields"
                " of the messages",
                "spec",
                "Take one out of decode.written_with, or add the columns of the messages to the"
                " schema; nothing was read.",
            )
        return columns

    def asking(self, registry: SchemaRegistry) -> ConfluentDecoder:
        """Returns this decoder with a registry to ask for schemas."""
        return replace(self, registry=registry)

    def prepared(self, topics: Sequence[str]) -> PreparedDecoder:
        """Asks for the newest versions of the topics' subjects, and finds their records."""
        if self.payloads.kind is None:
            return PreparedDecoder(self, [])
        subjects = dict.fromkeys(subject for topic in topics for subject in self.subjects.of(topic))
        versions = {
            subject: self.required_registry.of_subject(subject, MOST_VERSIONS)
            for subject in subjects
        }
        schemas = [schema for of_subject in versions.values() for schema in of_subject]
        if self.records or not self.payloads.has_row_record:
            return PreparedDecoder(self, schemas)
        setting = "decode.records" if self.subjects.part == "value" else "decode.key.records"
        records = {
            subject: [names for schema in of_subject for names in self._records(schema)]
            for subject, of_subject in versions.items()
        }
        return PreparedDecoder(replace(self, records=record_of_subjects(records, setting)), schemas)

    def _records(self, schema: WriterSchema) -> list[frozenset[str]]:
        """Returns the names of a schema's records.

        A schema that can't be used has none: its messages will be dead letters.
        """
        try:
            return self.payloads.records(schema) if schema.kind == self.payloads.kind else []
        except SpecError:
            return []

    def with_schemas(self, schemas: Sequence[WriterSchema]) -> ConfluentDecoder:
        return (
            replace(self, known_schemas=tuple(schemas)) if self.payloads.kind is not None else self
        )

    def schema_ids(self, messages: pa.RecordBatch, _stages: pa.StringArray) -> pa.StringArray:
        """Reads the schema id of each message from its frame, for every stage."""
        return schema_ids(messages, self.subjects.header, paths=self.payloads.paths)

    def open(self) -> Decode:
        """Opens the decoder. A thread keeps its batch decoders until the model's file changes."""
        return self.open_reporting(lambda _schema, _requested: None)

    def open_reporting(self, on_schema: OnSchema) -> Decode:
        recipe = replace(self, known_schemas=())
        batch_decoders = built_of_model(
            recipe,
            self.model,
            lambda model: BatchDecoders(recipe, self.part.of(Columns.of(model))),
        )
        self.payloads.check(batch_decoders.columns)
        return FramedBatchDecoder(self, batch_decoders, on_schema).decode

    @property
    def required_registry(self) -> SchemaRegistry:
        """Registry to ask.

        Raises:
            BugError: `asking` wasn't called.
        """
        if self.registry is None:
            raise BugError(
                "A decoder was given no schema registry",
                "decode",
                "Nothing was committed. Report a bug.",
            )
        return self.registry


_OfFrame = RecordDecoder | OtherRecord | OneOfSeveral | str
"""The decoder for a frame, or why there is none. A text is why the schema can't be used."""


class BatchDecoders:
    """Batch decoders of a thread, by schema and frame."""

    def __init__(self, decoder: ConfluentDecoder, columns: Columns) -> None:
        self.columns = columns
        of_schema = dict(decoder.written_with)
        self._of_payload = replace(
            columns,
            columns=tuple(c for c in columns.columns if c.name not in of_schema),
            constraints=(),
        )
        self._decoder = decoder
        self._cached_decoder = lru_cache(KEPT_DECODERS)(self._make_decoder)

    def of(self, schema: WriterSchema | None, frame: Frame) -> _OfFrame:
        """Returns the decoder for messages with a frame; it is made when first needed."""
        return self._cached_decoder(schema, msgspec.structs.replace(frame, id=""))

    def _make_decoder(self, schema: WriterSchema | None, frame: Frame) -> _OfFrame:
        kind = self._decoder.payloads.kind
        if schema is not None and schema.kind != kind:
            return f"it is of kind {schema.kind}, not {kind}"
        try:
            return self._decoder.payloads.batch_decoder(
                schema, frame, self._of_payload, self._decoder.records
            )
        except SpecError as error:
            return error.message[:LONGEST_REASON]


class FramedBatchDecoder:
    """Decodes batches of one split.

    Attributes:
        _schemas: the known schemas, by id.
        _reported: the ids of the schemas that `on_schema` was called with.
        _unknown: the ids that the registry doesn't know.
    """

    def __init__(
        self, decoder: ConfluentDecoder, batch_decoders: BatchDecoders, on_schema: OnSchema
    ) -> None:
        self._decoder = decoder
        self._batch_decoders = batch_decoders
        self._on_schema = on_schema
        self._schemas = {schema.id: schema for schema in decoder.known_schemas}
        self._reported: set[str] = set()
        self._unknown: set[str] = set()

    def decode(self, messages: pa.RecordBatch) -> Decoded:
        """Returns the verdict on each message.

        Raises:
            WindrowError: the registry didn't answer; it doesn't know an id, and the spec has
                `unknown_id: fail`; or it doesn't know more than `_MOST_UNKNOWN` ids.
        """
        framed = frames_of(
            messages, self._decoder.subjects.header, paths=self._decoder.payloads.paths
        )
        if framed.has_compressed:
            return decode_opened(messages, self.decode, open_frame)
        values, numbers = messages.column("value"), framed.numbers
        # Nearly always all messages have the same frame.
        if len(framed.frames) == 1 and len(numbers) and not numbers.any():
            whole = self._of_frame(framed.frames[0], values, messages, numbers)
            has_deletes = self._key is None or whole.deletes is not None
            return whole if has_deletes else together(self._schema, [whole], self._key)
        parts = [
            (np.flatnonzero(numbers == NULL), self._nulls),
            (np.flatnonzero(numbers == NAMELESS), self._nameless),
        ]
        decoded = [
            make(len(indices)).renumber(pa.array(indices))
            for indices, make in parts
            if len(indices)
        ]
        for number, indices in _group_rows(numbers, len(framed.frames)):
            of_frame = values.take(pa.array(indices))
            part = self._of_frame(framed.frames[number], of_frame, messages, indices)
            decoded.append(part.renumber(pa.array(indices)))
        return together(self._schema, decoded, self._key)

    @property
    def _key(self) -> tuple[str, ...] | None:
        return self._decoder.deletes_by

    @property
    def _schema(self) -> pa.Schema:
        return self._batch_decoders.columns.arrow_schema

    def _of_frame(
        self,
        frame: Frame,
        values: pa.BinaryArray,
        messages: pa.RecordBatch,
        rows: npt.NDArray[np.int64],
    ) -> Decoded:
        """Decodes messages with one frame.

        Args:
            frame: the frame.
            values: the values of these messages.
            messages: the whole batch.
            rows: the numbers of these messages in the batch.
        """
        schema = None
        if self._decoder.payloads.kind is not None:
            schema = self._writer_schema(frame.id, messages, rows)
            if schema is None:
                return self._dead(
                    len(values),
                    VALUE,
                    "unknown_schema",
                    f"Schema id {frame.id}: the schema registry doesn't know it",
                )
        of_frame = self._batch_decoders.of(schema, frame)
        if isinstance(of_frame, str):
            return self._dead(
                len(values), SCHEMA, "incompatible_schema", f"Schema id {frame.id}: {of_frame}"
            )
        if isinstance(of_frame, OtherRecord):
            return self._others(
                len(values),
                f"Schema id {frame.id}: Expected a record that is a row, got {of_frame.name}",
            )
        if isinstance(of_frame, OneOfSeveral):
            return self._of_union(of_frame.count, frame, values, messages, rows)
        decoded = self._with_schema(
            of_frame.decode(values, messages, rows), frame.id, of_frame.record
        )
        if not len(decoded.dead_detail):
            return decoded
        return replace(
            decoded,
            dead_detail=pc.binary_join_element_wise(
                f"Schema id {frame.id}: ", decoded.dead_detail, ""
            ),
        )

    def _of_union(
        self,
        count: int,
        frame: Frame,
        values: pa.BinaryArray,
        messages: pa.RecordBatch,
        rows: npt.NDArray[np.int64],
    ) -> Decoded:
        """Decodes messages that begin with the number of a type, in a union of `count` types."""
        branches, sizes = branches_of(values, frame.skip)
        parts: list[Decoded] = []
        for branch, size in np.unique(np.stack([branches, sizes]), axis=1).T.tolist():
            indices = np.flatnonzero((branches == branch) & (sizes == size))
            if 0 <= branch < count:
                branch_frame = msgspec.structs.replace(
                    frame, skip=frame.skip + size, path=(branch,)
                )
                part = self._of_frame(
                    branch_frame, values.take(pa.array(indices)), messages, rows[indices]
                )
            else:
                detail = (
                    f"Schema id {frame.id}: Avro is malformed: the union has only {count} types"
                )
                part = self._dead(len(indices), VALUE, "not_avro", detail)
            parts.append(part.renumber(pa.array(indices)))
        return together(self._schema, parts, self._key)

    def _with_schema(self, decoded: Decoded, id_: str, record: str) -> Decoded:
        """Adds the columns of `written_with` to rows that were written with one schema."""
        if not self._decoder.written_with:
            return decoded
        rows = decoded.rows
        added_columns = {
            name: pa.repeat(id_ if source == "schema_id" else record, rows.num_rows)
            for name, source in self._decoder.written_with
        }
        columns = [
            added_columns[name] if name in added_columns else rows.column(name)
            for name in self._schema.names
        ]
        return replace(decoded, rows=pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _others(self, count: int, detail: str) -> Decoded:
        if self._decoder.other_records == "filter":
            return replace(self._dead(0, SCHEMA, "", ""), filtered=count)
        return self._dead(count, SCHEMA, "other_record", detail)

    def _writer_schema(
        self, id_: str, messages: pa.RecordBatch, rows: npt.NDArray[np.int64]
    ) -> WriterSchema | None:
        if id_ in self._unknown:
            return None
        if id_ not in self._schemas:
            schema = self._decoder.required_registry.schema(id_)
            if schema is None:
                self._note_unknown(id_, messages.slice(int(rows[0]), 1))
                return None
            self._schemas[id_] = schema
            self._reported.add(id_)
            self._on_schema(schema, True)
        if id_ not in self._reported:
            self._reported.add(id_)
            self._on_schema(self._schemas[id_], False)
        return self._schemas[id_]

    def _note_unknown(self, id_: str, message: pa.RecordBatch) -> None:
        self._unknown.add(id_)
        position = (message.column(name)[0].as_py() for name in ("topic", "partition", "offset"))
        part = self._decoder.subjects.part
        if self._decoder.unknown_id == "fail":
            raise RefusedError(
                f"The schema registry doesn't know schema id {id_}, which a message's {part} names",
                "decode",
                "Register the schema again under this id, or set unknown_id: dead to make its"
                " messages dead letters. Nothing was committed.",
                *position,
            )
        if len(self._unknown) > _MOST_UNKNOWN:
            raise RefusedError(
                f"Messages name more than {_MOST_UNKNOWN} schema ids that the schema registry"
                " doesn't know",
                "decode",
                "Check whether the topic is in another format. Nothing was committed.",
                *position,
            )

    def _nulls(self, count: int) -> Decoded:
        if self._decoder.on_null == "drop":
            return replace(self._dead(0, VALUE, "", ""), dropped=count)
        return self._dead(count, VALUE, "tombstone", "Expected a value, got a tombstone")

    def _nameless(self, count: int) -> Decoded:
        return self._dead(
            count,
            VALUE,
            "no_schema_id",
            "Expected a magic byte and a schema id at the beginning, or in a header",
        )

    def _dead(self, count: int, stage: str, reason: str, detail: str) -> Decoded:
        return refuse_all(self._schema, count, stage, reason, detail)


def _group_rows(
    numbers: npt.NDArray[np.int64], count: int
) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Returns each frame's number with the row numbers of its messages, in order."""
    order = np.argsort(numbers, kind="stable").astype(np.int64)
    edges = np.searchsorted(numbers[order], np.arange(count + 1))
    return [(number, order[edges[number] : edges[number + 1]]) for number in range(count)]
