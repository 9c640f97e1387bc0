"""A small test format: a message becomes a row for each of its words.

A message without words becomes no row.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from windrow.ingest.formats.kind import FormatSection
from windrow.ingest.ports.decoder import Decode, Decoded
from windrow.ingest.schema.columns import Column, Columns


class WordsSection(FormatSection):
    format: Literal["words"] = "words"
    most: int = 1000

    def decoder(self, folder: Path) -> WordsDecoder:
        return WordsDecoder(self.most)


@dataclass(frozen=True)
class WordsDecoder:
    most: int

    @property
    def columns(self) -> Columns:
        return Columns(
            (
                Column("word", pa.string(), nullable=False),
                Column("letters", pa.int32(), nullable=False),
            )
        )

    def open(self) -> Decode:
        return self._decode_words

    def _decode_words(self, messages: pa.RecordBatch) -> Decoded:
        words, index, dead, reasons = [], [], [], []
        for i, value in enumerate(messages["value"].to_pylist()):
            if value is None or not value.isascii() or len(value.split()) > self.most:
                dead.append(i)
                reasons.append(
                    "tombstone" if value is None else "too_many" if value.isascii() else "not_ascii"
                )
                continue
            words += (message_words := value.decode().split())
            index += [i] * len(message_words)
        rows = pa.RecordBatch.from_arrays(
            [pa.array(words, pa.string()), pa.array(map(len, words), pa.int32())],
            schema=self.columns.arrow_schema,
        )
        letters = (
            pa.array(dead, pa.int64()),
            pa.repeat("value", len(dead)),
            pa.array(reasons, pa.string()),
            pa.nulls(len(dead), pa.string()),
        )
        return Decoded(
            rows,
            pa.array(index, pa.int64()),
            *letters,
            filtered=messages.num_rows - len(dead) - len(set(index)),
        )
