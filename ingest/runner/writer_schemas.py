"""Writers' schemas in a run: an id means the same in every try, window and task.

    before a job      the ledger's schemas, and those that the registry has under the subjects of
                      its topics, which the ledger keeps from then on
    in a task         an id that is none of these is asked for, once in a split, and comes back
                      with the results
    before a commit   the ledger keeps these, if they are no other schemas than those it has
                      under their ids

So a retry decodes by the schemas of the first try: those were kept before anything of
it was committed, and nothing depends on a try that committed nothing. If a registry
gives another schema under an id than before, each of these steps refuses it.
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
    """Returns the pipeline with a decoder that knows the schemas of some messages.

    They are those of the attempts. A decoder that uses no schemas stays as it is.

    Raises:
        RefusedError: the registry has another schema under an id than the pipeline met
            before.
        UnreachableError: the registry doesn't answer.
        SpecError: nothing says which record the messages are.
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
        if attempt.found is not None:
            _refuse_others(by_id.values(), attempt.found.receipt.splits)
    ready = prepared.decoder.with_schemas(list(_small_enough(by_id.values())))
    return replace(pipeline, decoder=lambda: ready)


def decoder_for(pipeline: Pipeline, topics: Sequence[str]) -> Decoder:
    """Returns the pipeline's decoder for messages of some topics, outside of a run.

    A schema that the pipeline has met means the same as then.

    Raises:
        UnreachableError: the registry doesn't answer.
        SpecError: nothing says which record the messages are.
    """
    decoder = pipeline.decoder()
    if not isinstance(decoder, UsesSchemas) or not topics:
        return decoder
    return decoder.prepared(topics).decoder.with_schemas(
        list(_small_enough(pipeline.ledger.schemas(pipeline.spec.id)))
    )


def keep_schemas(pipeline: Pipeline, staged: Sequence[Staged]) -> None:
    """Keeps the schemas that tasks had to ask for.

    Raises:
        RefusedError: one is another than the pipeline met under that id, or than
            another task was given.
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
    """Checks that a replaced generation was decoded by the schemas that are known now."""
    digests = {schema.id: schema.digest for schema in known_schemas}
    for split in splits:
        for id_, digest in split.schemas:
            if digests.get(id_, digest) != digest:
                raise _other_schema_error(id_)


def _small_enough(schemas: Iterable[WriterSchema]) -> Iterable[WriterSchema]:
    """Yields as many schemas as are small enough to be sent with each task.

    Tasks ask for the others.
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
