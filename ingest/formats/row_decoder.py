"""Decoder of messages that hold one row each, in any encoding."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.field_paths import FieldReader, columns_as_sent
from windrow.ingest.formats.several_documents import ValueDocuments
from windrow.ingest.ports.decoder import Decode, Decoded
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.message_fields import DocumentForm
from windrow.ingest.schema.message_part import WHOLE, Part
from windrow.ingest.schema.user_code import ModelReference, built_of_model, load_model

OnNull = Literal["dead", "drop"]
DecodeValues = Callable[[pa.BinaryArray, OnNull], Decoded]
"""Gives the verdict on each value of a batch."""


class Encoding(Protocol):
    """Encoding of rows, with all the options that a spec gives for it.

    It is picklable, because it is sent to tasks. It is hashable, because it is a key of
    the cache of batch decoders.
    """

    def now(self) -> Self:
        """Returns the same encoding with the present content of its files.

        Raises:
            SpecError: a file can't be read.
        """

    def check(self, columns: Columns) -> None:
        """Refuses columns of types that the encoding can't hold.

        Raises:
            SpecError: names each such column.
        """

    def open(self, columns: Columns) -> DecodeValues:
        """Makes a function that decodes values to checked columns, for use by one thread."""


@dataclass(frozen=True)
class RowDecoder:
    """Decodes messages of one encoding to columns of a pandera model, one row a message.

    Attributes:
        model: the model.
        encoding: the encoding of the values.
        on_null: whether a message without a value is a dead letter, or is only counted.
        part: the columns of the model that the messages hold.
        documents: how a value holds several documents, which are a row each; None for one.
    """

    model: ModelReference
    encoding: Encoding
    on_null: OnNull = "dead"
    part: Part = WHOLE
    documents: DocumentForm | None = None

    @property
    def columns(self) -> Columns:
        return replace(self, encoding=self.encoding.now()).check_columns(load_model(self.model))

    def open(self) -> Decode:
        """Opens the decoder for this thread.

        The opened decoder is kept until one of the encoding's or model's files changes.
        """
        fixed = replace(self, encoding=self.encoding.now())
        decode = built_of_model(fixed, self.model, fixed.open_values)
        if self.documents is None:
            return lambda messages: decode(messages.column("value"), self.on_null)
        form, schema = self.documents, self.columns.arrow_schema

        def decode_documents(messages: pa.RecordBatch) -> Decoded:
            parts = ValueDocuments(messages, form, schema)
            return parts.join(decode(parts.documents, self.on_null))

        return decode_documents

    def open_values(self, model: type[Any]) -> DecodeValues:
        """Makes a function that decodes values to the columns of the loaded model."""
        columns = self.check_columns(model)
        sent_columns = columns_as_sent(columns)
        decode = self.encoding.open(sent_columns)
        if sent_columns is columns:
            return decode
        reader = FieldReader(columns, refuses_unknown=self.part.refuses_unknown)
        return lambda values, on_null: reader.take(decode(values, on_null))

    def check_columns(self, model: type[Any]) -> Columns:
        """Returns the columns of a model that the messages hold.

        Raises:
            SpecError: the encoding can't hold one of these columns.
        """
        columns = self.part.of(Columns.of(model))
        self.encoding.check(columns_as_sent(columns))
        return columns


def refuse_columns(names: Collection[str], encoding: str, advice: str) -> None:
    """Refuses a schema if an encoding can't hold some of its columns.

    Args:
        names: the names of these columns; if it is empty, nothing is refused.
        encoding: the encoding, for the error.
        advice: the advice of the error, without its end.

    Raises:
        SpecError: names each of these columns.
    """
    if names:
        raise SpecError(
            f"The schema can't be used for {encoding}: {', '.join(names)}",
            "spec",
            f"{advice}; nothing was read.",
        )
