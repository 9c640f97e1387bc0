"""Schema registries, and the decoders that use writers' schemas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import Decode, Decoder


class SchemaRegistry(Protocol):
    """A schema registry.

    Picklable, since tasks ask it too. Each question is repeated a bounded number of
    times, and takes bounded time and memory.

    All methods raise UnreachableError if the registry doesn't answer or gives an
    invalid answer, RefusedError if a schema is too large or refers to itself, and
    SpecError if the registry refuses the login. No error holds a secret.
    """

    def of_subject(self, subject: str, limit: int) -> list[WriterSchema]:
        """Returns the schemas of a subject's newest versions, newest first, at most `limit`.

        The list is empty if the subject doesn't exist.
        """

    def schema(self, id_: str) -> WriterSchema | None:
        """Returns the schema with an id; None if the registry doesn't have it."""


OnSchema = Callable[[WriterSchema, bool], None]
"""Called with a schema that decodes messages, and whether the registry was asked for it."""


@dataclass(frozen=True)
class PreparedDecoder:
    """A decoder for some topics, and the schemas that their messages may name.

    Both are known before any message is read.
    """

    decoder: UsesSchemas
    schemas: list[WriterSchema]


@runtime_checkable
class UsesSchemas(Protocol):
    """A decoder for messages that name the schema they were written with."""

    def asking(self, registry: SchemaRegistry) -> Decoder:
        """Returns this decoder with the registry that has its schemas."""

    def prepared(self, topics: Sequence[str]) -> PreparedDecoder:
        """Returns this decoder, prepared for some topics with the registry's schemas of them.

        Raises:
            WindrowError: as the registry.
            SpecError: neither the spec nor the registry says which record the messages are.
        """

    def with_schemas(self, schemas: Sequence[WriterSchema]) -> Decoder:
        """Returns this decoder with schemas that it then doesn't ask the registry for."""

    def schema_ids(self, messages: pa.RecordBatch, stages: pa.StringArray) -> pa.StringArray:
        """Returns the id of the schema that each of some refused messages named, or null.

        The registry isn't asked.

        Args:
            messages: the messages.
            stages: the stage that refused each message (one of `STAGES`). If the key was
                refused, the id is that of the key's schema, else that of the value's.
        """

    def open_reporting(self, on_schema: OnSchema) -> Decode:
        """Returns a function that decodes, as `Decoder.open` does.

        Each used schema is passed to `on_schema`, once. Unlike that of `Decoder.open`, the
        function may raise: it asks the registry for schemas that the decoder doesn't have.

        Raises:
            SpecError: a file or schema can't be loaded or used.
        """
