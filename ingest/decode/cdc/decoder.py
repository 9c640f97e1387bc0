"""Changes of a database's table -> rows and dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.decode.cdc.arrays import numbered, together
from ingest.decode.cdc.envelope import Change, Envelope, FieldPath
from ingest.decode.cdc.forms import AS_THEY_ARE, Forms
from ingest.decode.cdc.heads import EVERYTHING, Heads, Included
from ingest.decode.cdc.images import Image
from ingest.decode.cdc.inner import Inner, OnNull
from ingest.ports.decoder import Decode, Decoded
from ingest.schema.columns import Columns
from ingest.schema.load import built_of_model, model_now
from ingest.schema.part import WHOLE, Part


@dataclass(frozen=True)
class ChangeDecoder:
    """Messages in an envelope to the columns of a pandera model, a row for each change of a row.

    `inner`: what the envelope is written in; `root`: what it lies in there; `on_null`: what a message without a value becomes; `part`: which
    of the model's columns the messages hold; `beside`: those that the envelope has itself, each with its path in the envelope; `forms`: how
    values are written; `included`: whose rows are asked for.
    """

    reference: str
    folder: Path
    inner: Inner
    envelope: Envelope
    root: FieldPath = ()
    on_null: OnNull = "drop"
    part: Part = WHOLE
    beside: tuple[tuple[str, FieldPath], ...] = ()
    forms: Forms = AS_THEY_ARE
    included: Included = EVERYTHING

    @property
    def columns(self) -> Columns:
        """See `ports.decoder.Decoder.columns`."""
        columns = self._columns(model_now(self.reference, self.folder)[1])
        self.included.check()
        inner = self.inner.now()
        for asked in self._all_asked(columns):
            inner.check(asked)
        return columns

    def open(self) -> Decode:
        """See `ports.decoder.Decoder.open`. A thread's machine is kept until the model's file, or one of the format's, changes."""
        recipe = replace(self, inner=self.inner.now())
        return built_of_model(recipe, self.reference, self.folder, lambda model: _Machine(recipe, recipe._columns(model))).decode

    def heads(self) -> Heads:
        """What is asked of a message first."""
        return Heads(self.envelope, self.root, self.included)

    def image(self, columns: Columns, change: Change) -> Image:
        """Where the rows of a change are."""
        field = self.envelope.written if change == Change.WRITTEN else self.envelope.removed
        beside = tuple((name, (*self.root, *path)) for name, path in self.beside)
        return Image((*self.root, field), columns, self.envelope.many, beside, self.forms)

    def _columns(self, model: type[Any]) -> Columns:
        columns = self.part.of(Columns.of(model))
        Part(without=tuple(name for name, _ in self.beside), place="decode.envelope").of(columns)
        return columns

    def _all_asked(self, columns: Columns) -> Iterator[Columns]:
        yield self.heads().columns
        yield from (self.image(columns, change).asked for change in (Change.WRITTEN, Change.REMOVED))


class _Machine:
    """What the recipe builds. Not for several threads at once."""

    def __init__(self, recipe: ChangeDecoder, columns: Columns) -> None:
        self._schema = columns.arrow_schema
        self._heads = recipe.heads()
        self._head = recipe.inner.open(self._heads.columns, recipe.on_null)
        self._images = {change: recipe.image(columns, change) for change in (Change.WRITTEN, Change.REMOVED)}
        self._decodes = {change: recipe.inner.open(image.asked, "dead") for change, image in self._images.items()}

    def decode(self, messages: pa.RecordBatch) -> Decoded:
        """The verdict on each message."""
        heads, changes = self._heads.asked(self._head, messages)
        index = heads.row_index.to_numpy()
        rows = [self._rows(change, messages, index[changes == change]) for change in self._images]
        nothing = replace(heads, rows=heads.rows.slice(0, 0), row_index=heads.row_index.slice(0, 0))
        return together(self._schema, [nothing, *rows])

    def _rows(self, change: Change, messages: pa.RecordBatch, index: npt.NDArray[np.int64]) -> Decoded:
        """What the messages of one change become, by their numbers."""
        image, decode = self._images[change], self._decodes[change]
        if len(index) == messages.num_rows:
            return image.rows(decode, messages)
        numbers = pa.array(index, pa.int64())
        return numbered(image.rows(decode, messages.take(numbers)), numbers)
