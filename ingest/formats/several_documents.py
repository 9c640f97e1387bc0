"""Values that hold several JSON documents, in an array or in lines; each becomes a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.formats.shared.budget import budget, item_cost
from windrow.ingest.formats.shared.decoded import DeadLetters, together
from windrow.ingest.formats.shared.refusal import RefusedValueError
from windrow.ingest.formats.shared.repetition import (
    byte_sizes,
    key_and_header_sizes,
    max_repeated_bytes,
)
from windrow.ingest.ports.decoder import Decoded, Ignored
from windrow.ingest.schema.message_fields import DocumentForm

_TOO_MANY = "Expected fewer rows, or rows of fewer columns, or a shorter key and headers"


class ValueDocuments:
    """Documents of a batch of values.

    Attributes:
        documents: the documents of all values. A null stays a null.
    """

    def __init__(self, messages: pa.RecordBatch, form: DocumentForm, schema: pa.Schema) -> None:
        """Takes the values of messages apart.

        Args:
            messages: the messages.
            form: how their values hold documents.
            schema: the schema of the rows.
        """
        self._dead, self._schema = DeadLetters(), schema
        cost = item_cost(pa.struct(list(schema)))
        values, repeated_sizes = messages.column("value"), key_and_header_sizes(messages)
        max_bytes = max_repeated_bytes(byte_sizes(values) + repeated_sizes)
        documents, counts = list[bytes | None](), np.zeros(len(values), np.int64)
        for number, value in enumerate(values.to_pylist()):
            try:
                of_value = [None] if value is None else documents_of_value(value, form)
            except RefusedValueError as refusal:
                self._dead.add(number, refusal)
                continue
            too_many = (len(of_value) - 1) * repeated_sizes[number] > max_bytes[number]
            if too_many or cost * len(of_value) > budget(len(value or b"")):
                self._dead.add(number, RefusedValueError("too_large", _TOO_MANY, ""))
                continue
            documents += of_value
            counts[number] = len(of_value)
        self.documents = pa.array(documents, pa.binary())
        self._numbers = np.repeat(np.arange(len(values)), counts)
        self._without_documents = int(np.count_nonzero(counts == 0))

    def join(self, decoded: Decoded) -> Decoded:
        """Returns the verdict on the values.

        A value is refused as a whole, for the first of its documents that is refused.

        Args:
            decoded: the verdict on the documents.
        """
        refused, first = np.unique(self._numbers[decoded.dead_index.to_numpy()], return_index=True)
        index = self._numbers[decoded.row_index.to_numpy()]
        kept_mask = ~np.isin(index, refused)
        dead = self._dead.verdict(self._schema)
        position = decoded.dead_index.to_numpy()[first] - np.searchsorted(self._numbers, refused)
        is_null = self.documents.is_null().take(decoded.dead_index.take(first)).to_pylist()
        words = pa.array(
            [
                "" if null else f", in document {n + 1} of the value"
                for n, null in zip(position, is_null, strict=True)
            ],
            pa.string(),
        )
        joined = replace(
            decoded,
            rows=decoded.rows.filter(pa.array(kept_mask)),
            row_index=pa.array(index[kept_mask]),
            dead_index=pa.array(refused),
            dead_stage=decoded.dead_stage.take(first),
            dead_reason=decoded.dead_reason.take(first),
            dead_detail=pc.binary_join_element_wise(decoded.dead_detail.take(first), words, ""),
            filtered=self._without_documents - len(dead.dead_index),
            cut=np.unique(self._numbers[decoded.cut]),
            ignored=tuple(map(self._join_ignored, decoded.ignored)),
        )
        return together(self._schema, [joined, dead])

    def _join_ignored(self, part: Ignored) -> Ignored:
        """Returns the ignored fields of values, from those of their documents."""
        numbers = self._numbers[part.index]
        index: npt.NDArray[np.int64] = np.unique(numbers)

        def fields(position: int) -> Iterable[str]:
            begin, end = np.searchsorted(numbers, [index[position], index[position] + 1])
            return dict.fromkeys(name for i in range(begin, end) for name in part.fields(i))

        return Ignored(index, fields)


def documents_of_value(value: bytes, form: DocumentForm) -> list[bytes]:
    """Returns the documents of a value.

    Raises:
        RefusedValueError: the value is no array.
    """
    if form == "lines":
        return [line for line in value.split(b"\n") if line.strip()]
    try:
        return [bytes(item) for item in msgspec.json.decode(value, type=list[msgspec.Raw])]
    except msgspec.ValidationError:
        raise RefusedValueError("wrong_type", "Expected array", "$") from None
    except (msgspec.DecodeError, RecursionError):
        raise RefusedValueError("not_json", "JSON is malformed: no array", "") from None
