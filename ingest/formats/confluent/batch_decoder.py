"""Decodes batches of framed messages: each message by the schema that its frame names.

The messages of a batch are grouped by their frames. Each group is decoded by the batch
decoder for its frame, and the rows are put back in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.formats.confluent.decoder import ConfluentDecoder, Payloads
from windrow.ingest.formats.confluent.frame import NAMELESS, NULL, Frame, branches_of, frames_of
from windrow.ingest.formats.confluent.records import (
    OneOfSeveral,
    OtherRecord,
    RecordDecoder,
    WrittenWith,
)
from windrow.ingest.formats.shared.decoded import nothing, together
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import SCHEMA, VALUE, Decoded
from windrow.ingest.ports.schemas import OnSchema
from windrow.ingest.schema.columns import Columns

KEPT_DECODERS = 32
"""Number of batch decoders that a thread keeps. With more schemas in turn, some are made again."""
_MOST_UNKNOWN = 1000
"""Most schema ids in a split that the registry doesn't know.

With more of them the topic is most likely in another format.
"""
_LONGEST_REASON = 300
"""The most characters of a dead letter's detail that say why a schema can't be used."""


_OfFrame = RecordDecoder | OtherRecord | OneOfSeveral | str
"""The decoder for a frame, or why there is none; a text says why the schema can't be used."""


class BatchDecoders:
    """Batch decoders of a thread, by schema and frame."""

    def __init__(
        self,
        payloads: Payloads,
        columns: Columns,
        records: Sequence[str] = (),
        written_with: Sequence[tuple[str, WrittenWith]] = (),
    ) -> None:
        self.columns = columns
        of_schema = dict(written_with)
        self._of_payload = replace(
            columns,
            columns=tuple(c for c in columns.columns if c.name not in of_schema),
            constraints=(),
        )
        self._payloads = payloads
        self._records = records
        self._kept = lru_cache(KEPT_DECODERS)(self._made)

    def of(self, schema: WriterSchema | None, frame: Frame) -> _OfFrame:
        """Returns the decoder for messages with a frame, made when it is first needed."""
        return self._kept(schema, frame._replace(id=""))

    def _made(self, schema: WriterSchema | None, frame: Frame) -> _OfFrame:
        kind = self._payloads.kind
        if schema is not None and schema.kind != kind:
            return f"it is of kind {schema.kind}, not {kind}"
        try:
            return self._payloads.batch_decoder(schema, frame, self._of_payload, self._records)
        except SpecError as error:
            return error.what[:_LONGEST_REASON]


class FramedBatchDecoder:
    """Decodes batches of one split.

    - `_schemas`: the schemas that are known, by id; `_reported`: the ids of those that `on_schema`
      was called with.
    - `_unknown`: the ids that the registry doesn't know.
    """

    def __init__(
        self, decoder: ConfluentDecoder, batch_decoders: BatchDecoders, on_schema: OnSchema
    ) -> None:
        self._decoder = decoder
        self._batch_decoders = batch_decoders
        self._on_schema = on_schema
        self._schemas = {schema.id: schema for schema in decoder.known}
        self._reported: set[str] = set()
        self._unknown: set[str] = set()

    def decode(self, messages: pa.RecordBatch) -> Decoded:
        """Returns the verdict on each message.

        Raises:
            WindrowError: the registry didn't answer, or it doesn't know an id and the
                spec says that this refuses the window.
        """
        framed = frames_of(
            messages, self._decoder.subjects.header, paths=self._decoder.payloads.paths
        )
        values, numbers = messages.column("value"), framed.numbers
        # nearly always all messages have the same frame
        if len(framed.frames) == 1 and len(numbers) and not numbers.any():
            return self._of_frame(framed.frames[0], values, messages, numbers)
        parts = [
            (np.flatnonzero(numbers == NULL), self._nulls),
            (np.flatnonzero(numbers == NAMELESS), self._nameless),
        ]
        decoded = [make(len(at)).numbered(pa.array(at)) for at, make in parts if len(at)]
        for number, at in _grouped(numbers, len(framed.frames)):
            of_frame = values.take(pa.array(at))
            made = self._of_frame(framed.frames[number], of_frame, messages, at)
            decoded.append(made.numbered(pa.array(at)))
        return together(self._schema, decoded)

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

        `values`: their values; `rows`: their row numbers in `messages`.
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
            of_frame.decoder.decode(values, "dead"), frame.id, of_frame.record
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
        """Decodes messages that begin with the number of one of `count` records."""
        branches, sizes = branches_of(values, frame.skip)
        parts: list[Decoded] = []
        for branch, size in np.unique(np.stack([branches, sizes]), axis=1).T.tolist():
            at = np.flatnonzero((branches == branch) & (sizes == size))
            if 0 <= branch < count:
                inside = frame._replace(skip=frame.skip + size, path=(branch,))
                made = self._of_frame(inside, values.take(pa.array(at)), messages, rows[at])
            else:
                what = f"Schema id {frame.id}: Avro is malformed: the union has only {count} types"
                made = self._dead(len(at), VALUE, "not_avro", what)
            parts.append(made.numbered(pa.array(at)))
        return together(self._schema, parts)

    def _with_schema(self, decoded: Decoded, id_: str, record: str) -> Decoded:
        """Adds the columns of `written_with` to the rows of a schema."""
        if not self._decoder.written_with:
            return decoded
        rows = decoded.rows
        added = {
            name: pa.repeat(id_ if what == "schema_id" else record, rows.num_rows)
            for name, what in self._decoder.written_with
        }
        columns = [
            added[name] if name in added else rows.column(name) for name in self._schema.names
        ]
        return replace(decoded, rows=pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _others(self, count: int, what: str) -> Decoded:
        if self._decoder.other_records == "filter":
            return replace(self._dead(0, SCHEMA, "", ""), filtered=count)
        return self._dead(count, SCHEMA, "other_record", what)

    def _writer_schema(
        self, id_: str, messages: pa.RecordBatch, rows: npt.NDArray[np.int64]
    ) -> WriterSchema | None:
        if id_ in self._unknown:
            return None
        if id_ not in self._schemas:
            schema = self._decoder.asked.schema(id_)
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
            what = (
                f"The schema registry doesn't know schema id {id_}, which a message's {part} names"
            )
            do = (
                "Register the schema again under this id, or set unknown_id: dead to make its"
                " messages dead letters. Nothing was committed."
            )
            raise RefusedError(what, "decode", do, *position)
        if len(self._unknown) > _MOST_UNKNOWN:
            what = (
                f"Messages name more than {_MOST_UNKNOWN} schema ids that the schema registry"
                " doesn't know"
            )
            raise RefusedError(
                what,
                "decode",
                "Check whether the topic is in another format. Nothing was committed.",
                *position,
            )

    def _nulls(self, count: int) -> Decoded:
        if self._decoder.on_null == "drop":
            return replace(self._dead(0, VALUE, "", ""), dropped=count)
        return self._dead(count, VALUE, "tombstone", "Expected a value, got none")

    def _nameless(self, count: int) -> Decoded:
        return self._dead(
            count,
            VALUE,
            "no_schema_id",
            "Expected a magic byte and a schema id at the beginning, or in a header",
        )

    def _dead(self, count: int, stage: str, reason: str, detail: str) -> Decoded:
        """Makes the verdict on `count` messages that are refused for one reason."""
        return replace(
            nothing(self._schema),
            dead_index=pa.array(np.arange(count, dtype=np.int64)),
            dead_stage=pa.repeat(stage, count),
            dead_reason=pa.repeat(reason, count),
            dead_detail=pa.repeat(detail, count),
        )


def _grouped(numbers: npt.NDArray[np.int64], count: int) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Returns the rows of each frame's messages, in order, by one sort."""
    order = np.argsort(numbers, kind="stable").astype(np.int64)
    edges = np.searchsorted(numbers[order], np.arange(count + 1))
    return [(number, order[edges[number] : edges[number + 1]]) for number in range(count)]
