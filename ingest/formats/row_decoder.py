"""Decoder of messages that are one row each, in any encoding."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.ports.decoder import Decode, Decoded
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.message_part import WHOLE, Part
from windrow.ingest.schema.user_code import ModelReference, built_of_model, load_model

OnNull = Literal["dead", "drop"]
DecodeValues = Callable[[pa.BinaryArray, OnNull], Decoded]
"""Gives the verdict on each value of a batch."""


class Encoding(Protocol):
    """Encoding of rows, with all the options that a spec gives for it.

    Picklable and hashable: tasks are given it, and it is a key of the cache of batch
    decoders.
    """

    def now(self) -> Self:
        """Returns the same encoding with the present content of its files.

        Raises:
            SpecError: a file can't be read.
        """

    def check(self, columns: Columns) -> None:
        """Refuses columns for which the encoding has no values.

        Raises:
            SpecError: names each such column.
        """

    def open(self, columns: Columns) -> DecodeValues:
        """Makes a function that decodes values to checked columns, for one thread."""


@dataclass(frozen=True)
class RowDecoder:
    """Decodes messages of one encoding to columns of a pandera model: a row a message.

    `on_null`: what becomes of a message without a value. `part`: the columns of the
    model that the messages hold.
    """

    model: ModelReference
    encoding: Encoding
    on_null: OnNull = "dead"
    part: Part = WHOLE

    @property
    def columns(self) -> Columns:
        return replace(self, encoding=self.encoding.now()).checked(load_model(self.model))

    def open(self) -> Decode:
        """Opens the decoder for this thread.

        What was opened is kept until one of the files changes.
        """
        fixed = replace(self, encoding=self.encoding.now())
        decode = built_of_model(
            fixed, self.model, lambda model: fixed.encoding.open(fixed.checked(model))
        )
        return lambda messages: decode(messages.column("value"), self.on_null)

    def checked(self, model: type[Any]) -> Columns:
        """Columns of a model that the messages hold.

        Raises:
            SpecError: the encoding has no values for one of them.
        """
        columns = self.part.of(Columns.of(model))
        self.encoding.check(columns)
        return columns


def refuse_columns(names: Collection[str], encoding: str, advice: str) -> None:
    """Refuses a schema if an encoding has no values for some of its columns.

    Raises:
        SpecError: names each of these columns; not raised if `names` is empty.
    """
    if names:
        raise SpecError(
            f"The schema can't be used for {encoding}: {', '.join(names)}",
            "spec",
            f"{advice}; nothing was read.",
        )
