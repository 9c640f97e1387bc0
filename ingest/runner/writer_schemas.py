"""Writers' schemas in a run: a schema id means the same schema in every try, window and task.

    before a job      The decoder gets the ledger's schemas, and the registry's schemas under the
                      subjects of the job's topics. The ledger stores the latter.
    in a task         The task asks the registry for any other id, once per split. It returns
                      these schemas with its results.
    before a commit   The ledger stores these schemas.

The ledger has all schemas of a try before the try commits anything. So a retry decodes by the
same schemas. Each of these steps refuses a schema if the ledger has another schema under its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from windrow.ingest.errors import OwnerError
from windrow.ingest.model.receipt import SplitCounts, Staged
from windrow.ingest.model.writer_schema import MOST_CHARACTERS, WriterSchema
from windrow.ingest.ports.decoder import Decoder
from windrow.ingest.ports.schema_registry import UsesSchemas
from windrow.ingest.runner.attempts import Attempt
from windrow.ingest.runner.context import Pipeline


def with_writer_schemas(pipeline: Pipeline, attempts: Sequence[Attempt]) -> Pipeline:
    """Returns the pipeline with a decoder that knows the schemas of the attempts' messages.

    A decoder that uses no schemas isn't changed.

    Raises:
        RefusedError: the registry has another schema under an id than before.
        UnreachableError: the registry doesn't answer.
        SpecError: neither spec nor registry says which record the messages are.
    """
    topics = sorted({split.topic for attempt in attempts for split in attempt.readable})
    decoder = pipeline.decoder() if topics else None
    if not isinstance(decoder, UsesSchemas):
        return pipeline
    known_schemas = pipeline.ledger.schemas(pipeline.spec.id)
    prepared = decoder.prepared(topics)
    _keep(pipeline, prepared.schemas)
    by_id = {schema.id: schema for schema in (*prepared.schemas, *known_schemas)}
    for attempt in attempts:
        if attempt.replaced is not None:
            _refuse_others(by_id.values(), attempt.replaced.receipt.splits)
    ready = prepared.decoder.with_schemas(list(_small_enough(by_id.values())))
    return replace(pipeline, decoder=lambda: ready)


def decoder_for(pipeline: Pipeline, topics: Sequence[str]) -> Decoder:
    """Returns the pipeline's decoder for messages of some topics, outside of a run.

    It uses the ledger's schemas, if the ledger has the id.

    Raises:
        UnreachableError: the registry doesn't answer.
        SpecError: neither spec nor registry says which record the messages are.
    """
    decoder = pipeline.decoder()
    if not isinstance(decoder, UsesSchemas) or not topics:
        return decoder
    return decoder.prepared(topics).decoder.with_schemas(
        list(_small_enough(pipeline.ledger.schemas(pipeline.spec.id)))
    )


def keep_schemas(pipeline: Pipeline, staged: Sequence[Staged]) -> None:
    """Stores in the ledger the schemas for which tasks asked the registry.

    Raises:
        RefusedError: the ledger or another task has another schema under the same id.
    """
    requested_schemas = {
        (schema.id, schema.digest): schema
        for staged_split in staged
        for schema in staged_split.schemas
    }
    if requested_schemas:
        _keep(pipeline, list(requested_schemas.values()))


def _keep(pipeline: Pipeline, schemas: Sequence[WriterSchema]) -> None:
    for schema, kept_schema in zip(
        schemas, pipeline.ledger.keep_schemas(pipeline.spec.id, schemas), strict=True
    ):
        if schema.digest != kept_schema.digest:
            raise _other_schema_error(schema.id)


def _refuse_others(known_schemas: Iterable[WriterSchema], splits: Sequence[SplitCounts]) -> None:
    """Checks that a replaced generation was decoded by the same schemas.

    Raises:
        RefusedError: a receipt has another schema under an id.
    """
    digests = {schema.id: schema.digest for schema in known_schemas}
    for split in splits:
        for id_, digest in split.schemas:
            if digests.get(id_, digest) != digest:
                raise _other_schema_error(id_)


def _small_enough(schemas: Iterable[WriterSchema]) -> Iterable[WriterSchema]:
    """Yields the schemas that are sent with each task, up to `MOST_CHARACTERS` in total.

    Tasks ask the registry for the other schemas.
    """
    remaining_characters = MOST_CHARACTERS
    for schema in schemas:
        if schema.size <= remaining_characters:
            remaining_characters -= schema.size
            yield schema


def _other_schema_error(id_: str) -> OwnerError:
    return OwnerError(
        f"The schema registry has another schema under id {id_} than the one that this pipeline met"
        " there before",
        "decode",
        "A registry never changes the schema of an id: it was set up anew, or is another one. Name"
        " the right one in source.registry, or begin a pipeline with another id. Nothing was"
        " committed.",
    )
