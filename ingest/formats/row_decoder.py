"""Decoder of messages that are one row each, whatever they are written in."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.ports.decoder import Decode, Decoded
from windrow.ingest.schema.columns import Columns
from windrow.ingest.schema.load import ModelReference, built_of_model, model_now
from windrow.ingest.schema.part import WHOLE, Part

OnNull = Literal["dead", "drop"]
DecodeValues = Callable[[pa.BinaryArray, OnNull], Decoded]
"""The verdict on each value of a batch."""


class Encoding(Protocol):
    """How a row is written in bytes, with all that a spec says about it.

    Picklable and hashable: tasks get it, and batch decoders are kept by it.
    """

    def now(self) -> Self:
        """The same encoding with the content that its files have now.

        Raises:
            SpecError: a file can't be read.
        """

    def check(self, columns: Columns) -> None:
        """Refuses columns that can't come from it.

        Raises:
            SpecError: with each such column.
        """

    def open(self, columns: Columns) -> DecodeValues:
        """What decodes values to columns that were checked, for the thread that asks."""


@dataclass(frozen=True)
class RowDecoder:
    """Messages in one encoding to the columns of a pandera model, one row a message.

    `on_null`: what a message without a value becomes; `part`: the columns of the model
    that the messages hold.
    """

    model: ModelReference
    encoding: Encoding
    on_null: OnNull = "dead"
    part: Part = WHOLE

    @property
    def columns(self) -> Columns:
        return replace(self, encoding=self.encoding.now()).checked(model_now(self.model)[1])

    def open(self) -> Decode:
        """What it opens is kept for the thread until one of the files changes."""
        fixed = replace(self, encoding=self.encoding.now())
        decode = built_of_model(
            fixed, self.model, lambda model: fixed.encoding.open(fixed.checked(model))
        )
        return lambda messages: decode(messages.column("value"), self.on_null)

    def checked(self, model: type[Any]) -> Columns:
        """The columns of a model that the messages hold.

        Raises:
            SpecError: they can't come from the encoding.
        """
        columns = self.part.of(Columns.of(model))
        self.encoding.check(columns)
        return columns


def refuse_columns(names: Collection[str], encoding: str, do: str) -> None:
    """Refuses a schema for the columns that an encoding has no values for, if there are any.

    Raises:
        SpecError: with each column.
    """
    if names:
        what = f"The schema can't be used for {encoding}: {', '.join(names)}"
        raise SpecError(what, "spec", f"{do}; nothing was read.")
