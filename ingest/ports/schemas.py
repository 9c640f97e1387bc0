"""Where writers' schemas come from, and what decoders are besides that go by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import Decode, Decoder


class SchemaRegistry(Protocol):
    """A schema registry.

    Picklable: tasks ask it too. Each question is put a bounded number of times, and
    takes a bounded time and memory.

    All methods raise UnreachableError if it doesn't answer, or with what is no answer,
    RefusedError if a schema is too large or refers to itself, and SpecError if it
    doesn't let windrow in. No error holds a secret.
    """

    def of_subject(self, subject: str, most: int) -> list[WriterSchema]:
        """The schemas of a subject's newest versions, at most so many, newest first;
        none if there is no such subject.
        """

    def schema(self, id_: str) -> WriterSchema | None:
        """The schema of an id; None if the registry says that it has none."""


Tell = Callable[[WriterSchema, bool], None]
"""A schema that messages are decoded by, and whether the registry was asked for it."""


@dataclass(frozen=True)
class Foreseen:
    """What is known of some topics before any message is read: the decoder of theirs,
    and the schemas that they may name.
    """

    decoder: UsesSchemas
    schemas: list[WriterSchema]


@runtime_checkable
class UsesSchemas(Protocol):
    """A decoder whose messages name the schemas that they were written with."""

    def asking(self, registry: SchemaRegistry) -> Decoder:
        """The same decoder with the registry that has its schemas."""

    def foreseen(self, topics: Sequence[str]) -> Foreseen:
        """What the registry says beforehand of messages of some topics.

        Raises:
            WindrowError: as the registry.
            SpecError: nothing says of which record the messages are.
        """

    def with_schemas(self, known: Sequence[WriterSchema]) -> Decoder:
        """The same decoder with schemas that it needn't ask for."""

    def schema_ids(self, messages: pa.RecordBatch, stages: pa.StringArray) -> pa.StringArray:
        """Which schema each of some refused messages named, null where it named none; nobody is asked.

        Args:
            messages: the messages.
            stages: what refused each (one of `STAGES`): of a key that was refused it is
                the key's schema, else the value's.
        """  # noqa: E501

    def open_telling(self, tell: Tell) -> Decode:
        """As `Decoder.open`; each schema that messages are decoded by is told once.

        What it returns may raise, beside all else that promises it never does: of a
        schema that it wasn't given the registry is asked.

        Raises:
            SpecError: what it stands on can't be loaded or used.
        """
