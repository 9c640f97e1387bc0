"""Search for schema drift between a topic and a pipeline. It writes nothing.

Schema drift is: the pipeline's decoder or rules would refuse some of the newest messages, or a
registry's newest schemas don't fit the pipeline's columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.admin.findings import Finding, exit_code
from windrow.ingest.admin.peek import sample_topics
from windrow.ingest.config.limits import LimitsSpec, is_beyond_share
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.formats.cdc.kind import ChangeSection
from windrow.ingest.formats.confluent.decoder import Payloads
from windrow.ingest.formats.confluent.kind import RecordOptions
from windrow.ingest.formats.csv.kind import CsvOptions
from windrow.ingest.formats.kind import FormatSection, KeySection
from windrow.ingest.infer.avro import row_of_envelope
from windrow.ingest.infer.candidates import (
    Candidate,
    Refuses,
    column_refusal,
    example,
    struct_type,
    table_refusal,
    unmatched_paths,
)
from windrow.ingest.infer.change_events import ENVELOPES, changed_rows, events_of
from windrow.ingest.infer.csv_lines import rows_in
from windrow.ingest.infer.json_documents import candidates_of, parse_document
from windrow.ingest.infer.json_schema import json_candidates
from windrow.ingest.infer.model_update import (
    ENTRIES,
    ModelChange,
    find_changes,
    without_nulls,
)
from windrow.ingest.infer.pipeline_files import metadata_text, type_text
from windrow.ingest.infer.proposal import Document, KeyAndValue
from windrow.ingest.infer.registry_schemas import (
    EVENTS,
    FORMATS,
    Part,
    candidates_of_schema,
    path_in,
    read_frames,
)
from windrow.ingest.model.refusal_summary import in_words
from windrow.ingest.model.source import Selection
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import Decode, checked_verdict
from windrow.ingest.ports.schema_registry import SchemaRegistry
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.writer_schemas import decoder_for
from windrow.ingest.schema.columns import Columns
from windrow.ingest.sinks.kind import SinkSection

_SHOWN = 5
_UPDATE = "windrow infer --update SPEC adds fields"
_KEEPS = (
    "A Struct keeps the parts that it names (names that are data want a List of key and value), a"
    f" Float64 the digits that a double has (more want a Decimal). {_UPDATE} to Structs."
)
_FIX = "Fix the schema, or the producer."
_BATCH = 4096
_JSON = {"json", "json-schema-confluent"}

About = Literal["messages", "registry"]


class RefusalCount(msgspec.Struct, frozen=True):
    """Number of messages that would be dead letters for one reason, and the first of them.

    Attributes:
        stage: the stage that would refuse them.
        reason: the reason.
        description: the reason in words, without payload.
        messages: the number of messages.
        topic: the topic of the first message.
        partition: the partition of the first message.
        offset: the offset of the first message.
    """

    stage: str
    reason: str
    description: str = msgspec.field(name="what")
    messages: int
    topic: str
    partition: int
    offset: int


class DriftReport(msgspec.Struct, frozen=True):
    """Result of a check for schema drift.

    Attributes:
        pipeline: the pipeline's id.
        sampled: the number of sampled messages.
        fitting: the number of sampled messages that wouldn't be refused. Null if the
            messages couldn't be decoded; a finding has the reason.
        refused: the number of messages that would be refused, by reason.
        findings: the findings.
    """

    pipeline: str
    sampled: int
    fitting: int | None
    refused: tuple[RefusalCount, ...]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """Exit code: 1 if anything is wrong, 3 if something couldn't be checked, else 0."""
        return exit_code(self.findings)


def check(
    pipeline: Pipeline, selection: Selection, registry: SchemaRegistry | None, max_messages: int
) -> DriftReport:
    """Checks the newest messages and a registry's newest schemas against a pipeline.

    Args:
        pipeline: the pipeline.
        selection: the topics to check.
        registry: the registry of the topics' schemas; None if there is none.
        max_messages: the number of newest messages of each topic-partition that are
            sampled.

    Raises:
        SpecError: the topic doesn't exist, or the model can't be used.
        UnreachableError: the cluster doesn't answer.
    """
    spec, columns = pipeline.spec, _columns_of(pipeline)
    sample = sample_topics(
        pipeline.broker, pipeline.reader, selection, max_messages, spec.source.on_removed
    )
    messages, sampled, fitting = sample.messages, sample.messages.num_rows, None
    refused: tuple[RefusalCount, ...] = ()
    findings: list[Finding] = []
    try:
        refused = count_refusals(messages, _verdict_of(pipeline, messages))
        fitting = sampled - sum(refusal.messages for refusal in refused)
    except (RefusedError, UnreachableError, SpecError) as error:
        findings.append(_of_error(error, "messages"))
    findings += refusals(refused, sampled, spec.limits)
    if not sampled:
        findings.append(Finding("info", "messages", "No message can be sampled"))
    unusable = column_refusal(
        columns, table_refusal(spec.metadata, delta=spec.sink.kind == "delta")
    )
    findings += unknown_fields(spec.decode, columns, messages, unusable)
    if registry is not None:
        for topic in sample.topics:
            for subject in subjects_of(spec.decode, columns, topic):
                findings += _of_registry(registry, subject, messages, unusable)
    return DriftReport(spec.id, sampled, fitting, refused, tuple(findings))


def _columns_of(pipeline: Pipeline) -> Columns:
    """Returns the columns of the pipeline's model.

    Raises:
        SpecError: there are several models.
    """
    if pipeline.spec.route_specs:
        raise SpecError(
            "windrow infer compares one schema with a topic, and here each table has its own",
            "spec",
            "Write a spec for one of the tables, with its decode, and check that one.",
        )
    columns = pipeline.decoder().columns
    return columns.split_rest(keeps_unknown=pipeline.spec.decode.keeps_unknown)[1]


def _of_error(error: RefusedError | UnreachableError | SpecError, about: About) -> Finding:
    message = (
        f"{error.message}; first {error.log_position}" if error.log_position else error.message
    )
    return Finding(
        "unchecked" if isinstance(error, UnreachableError) else "wrong",
        about,
        message,
        error.advice,
    )


def _verdict_of(pipeline: Pipeline, messages: pa.Table) -> Decode:
    """Returns a function that decodes and transforms messages like a run."""
    decoder = decoder_for(pipeline, sorted(messages.column("topic").unique().to_pylist()))
    decode, transform = decoder.open(), pipeline.transform().open()
    return lambda messages: transform(checked_verdict(decoder, decode(messages)), messages)


def count_refusals(messages: pa.Table, verdict: Decode) -> tuple[RefusalCount, ...]:
    """Counts the messages that would be dead letters, by reason; the most frequent come first."""
    counts, first = (
        Counter[tuple[str, str, str]](),
        dict[tuple[str, str, str], tuple[str, int, int]](),
    )
    for batch in messages.combine_chunks().to_batches(max_chunksize=_BATCH):
        decoded = verdict(batch)
        positions = (
            batch.column(name).take(decoded.dead_index).to_pylist()
            for name in ("topic", "partition", "offset")
        )
        reason_columns = (
            column.to_pylist()
            for column in (decoded.dead_stage, decoded.dead_reason, decoded.dead_detail)
        )
        for stage, reason, detail, *position in zip(*reason_columns, *positions, strict=True):
            kind = stage, reason, in_words(reason, detail)
            counts[kind] += 1
            first.setdefault(kind, (position[0], position[1], position[2]))
    return tuple(RefusalCount(*kind, count, *first[kind]) for kind, count in counts.most_common())


def refusals(
    refused: Sequence[RefusalCount], sampled: int, limits: LimitsSpec
) -> Iterator[Finding]:
    """Yields a finding for each reason: wrong if a window would be refused, else info.

    Args:
        refused: the number of refused messages, by reason.
        sampled: the number of sampled messages.
        limits: the spec's limits.
    """
    dead = sum(refusal.messages for refusal in refused)
    by_stage = Counter[str]()
    for refusal in refused:
        by_stage[refusal.stage] += refusal.messages
    for refusal in refused:
        limited = ((dead, limits), (by_stage[refusal.stage], limits.for_stage(refusal.stage)))
        is_beyond = any(
            is_beyond_share(count, sampled, limit.max_dead_ratio) for count, limit in limited
        )
        message = (
            f"{refusal.messages:,} of {sampled:,} would be dead letters, {refusal.stage}"
            f" {refusal.reason}: {refusal.description}"
        )
        first_position = f"first {refusal.topic}[{refusal.partition}]@{refusal.offset}"
        yield Finding(
            "wrong" if is_beyond else "info",
            "messages",
            f"{message}; {first_position}",
            _FIX if is_beyond else "The limits allow so many.",
        )


def unknown_fields(
    section: FormatSection, columns: Columns, messages: pa.Table, unusable: Refuses
) -> Iterator[Finding]:
    """Yields findings of fields without a column, and of columns without a field.

    Args:
        section: the `decode` section.
        columns: the pipeline's columns.
        messages: the sampled messages.
        unusable: returns why a field can't be a column.
    """
    of_envelope = section.envelope if isinstance(section, ChangeSection) else ()
    of_value = _columns_of_value(section, columns, of_envelope)
    parts = [("documents", documents_in(section, messages, "value", of_value), of_value)]
    if section.key is not None:
        of_key = section.key.part.of(columns)
        parts.append(("keys", documents_in(section.key, messages, "key", of_key), of_key))
    for kind, documents, of_part in parts:
        if documents:
            name = f"{len(documents):,} sampled {kind}"
            candidates = candidates_of(documents)
            yield from compare_fields(
                name, "messages", candidates, of_part, {}, unusable, documents
            )
    if section.key is None and section.format == "json":
        yield from _unread_keys(messages)


def _unread_keys(messages: pa.Table) -> Iterator[Finding]:
    """Yields a finding if JSON keys have fields that their messages' values don't have."""
    count_by_field = Counter[str]()
    for pair in messages.select(["key", "value"]).to_pylist():
        key, value = parse_document(pair["key"] or b""), parse_document(pair["value"] or b"")
        if key is not None and value is not None:
            count_by_field.update(
                n
                for n, key_value in key.items()
                if key_value is not None and value.get(n) != key_value
            )
    if count_by_field:
        shown_fields = ", ".join(
            f"{name!a} ({n:,})" for name, n in count_by_field.most_common(_SHOWN)
        )
        message = f"Keys have what the values of their messages don't have: {shown_fields}"
        yield Finding("info", "messages", message, "decode.key makes columns of them.")


def _columns_of_value(
    section: FormatSection, columns: Columns, of_others: Container[str]
) -> Columns:
    """Returns the columns that fields of the value become, without those that others fill."""
    named = replace(section.part, keeps_unknown=False).of(columns)
    return Columns(tuple(column for column in named.columns if column.name not in of_others))


def documents_in(
    section: FormatSection | KeySection, messages: pa.Table, part: Part, columns: Columns
) -> list[Document]:
    """Returns the sampled JSON objects or CSV lines whose fields become columns.

    Returns an empty list for any other format, and for rows inside other objects or codecs.
    """
    if getattr(section, "codecs", ()) or getattr(section, "rows", None):
        return []
    if any(column.paths for column in columns.columns):
        return []
    is_framed = section.format.endswith("json-schema-confluent")
    values = read_frames(messages, part).values if is_framed else messages.column(part).to_pylist()
    if section.format in ENVELOPES:
        events = events_of(section.format, [KeyAndValue(None, value) for value in values])
        return [row for event in events for row in changed_rows(event)]
    if isinstance(section, CsvOptions):
        names = [column.name for column in columns.columns]
        lines = rows_in(values, section.encoding(Path(), "").dialect, len(names))
        return [dict(zip(names, (piece.text for piece in row), strict=True)) for row in lines]
    parsed = map(parse_document, filter(None, values)) if section.format in _JSON else ()
    return [parsed_document for parsed_document in parsed if parsed_document is not None]


_BY_SCHEMA = {*FORMATS.values(), EVENTS}


@dataclass(frozen=True)
class Subject:
    """Subject with the schemas of a topic's keys or values.

    Attributes:
        name: the subject's name.
        topic: the topic.
        part: whether the schemas are for keys or values.
        format: the format of the keys or values.
        payloads: the kind of the payloads.
        columns: the columns that come from the keys or values.
        flattened: whether values are rows that have no envelope any more.
    """

    name: str
    topic: str
    part: Part
    format: str
    payloads: Payloads
    columns: Columns
    flattened: bool = False


def names_schemas(section: FormatSection) -> bool:
    """Returns whether keys or values are in a format with a schema registry."""
    return any(part is not None and part.format in _BY_SCHEMA for part in (section, section.key))


def subjects_of(section: FormatSection, columns: Columns, topic: str) -> Iterator[Subject]:
    """Yields the subjects of a topic's keys and values, if their format has a registry."""
    of_names = (
        section.written_with
        if isinstance(section, RecordOptions)
        else section.envelope
        if isinstance(section, ChangeSection)
        else ()
    )
    parts: list[tuple[Part, Any, Columns]] = [
        ("value", section, _columns_of_value(section, columns, of_names))
    ]
    if section.key is not None:
        parts.append(("key", section.key, section.key.part.of(columns)))
    for part, options, of_part in parts:
        if options.format in _BY_SCHEMA:
            for name in options.subjects(part).of(topic):
                yield Subject(
                    name,
                    topic,
                    part,
                    options.format,
                    options.payloads(),
                    of_part,
                    getattr(options, "flattened", False),
                )


def _of_registry(
    registry: SchemaRegistry, subject: Subject, messages: pa.Table, unusable: Refuses
) -> list[Finding]:
    """Returns the findings of a subject's newest schema, or why it can't be checked."""
    try:
        newest = registry.of_subject(subject.name, 1)
        if not newest:
            return [Finding("info", "registry", f"There is no subject {subject.name}")]
        of_topic = messages.filter(pc.equal(messages.column("topic"), subject.topic))
        return list(compare_schema(newest[0], subject, of_topic, unusable))
    except (RefusedError, UnreachableError, SpecError) as error:
        return [_of_error(error, "registry")]


def compare_schema(
    schema: WriterSchema, subject: Subject, messages: pa.Table, unusable: Refuses
) -> Iterator[Finding]:
    """Yields the findings of a subject's newest schema.

    Args:
        schema: the newest schema.
        subject: the subject.
        messages: the sampled messages of the subject's topic.
        unusable: returns why a field can't be a column.
    """
    name = f"schema id {schema.id} (the newest of subject {subject.name})"
    candidates = _candidates_of_subject(schema, subject, messages)
    if isinstance(candidates, Finding):
        yield candidates
        return
    path = path_in(messages, subject.part) if schema.kind == "PROTOBUF" else ()
    columns = subject.columns.as_written({candidate.name for candidate in candidates}).columns
    row = _row_schema(schema, subject) or schema
    stated = json_candidates(row) if row.kind == "JSON" else candidates
    example_document = example(struct_type(stated))
    misfits = subject.payloads.misfits(row, path, columns, example_document)
    yield from compare_fields(
        name, "registry", candidates, columns, misfits, unusable, [example_document]
    )


def _row_schema(schema: WriterSchema, subject: Subject) -> WriterSchema | None:
    """Returns the schema of rows, also inside an envelope; None if it is no change event's."""
    is_envelope = subject.format == EVENTS and not subject.flattened
    return row_of_envelope(schema) if is_envelope else schema


def _candidates_of_subject(
    schema: WriterSchema, subject: Subject, messages: pa.Table
) -> list[Candidate] | Finding:
    """Returns the fields of a subject's newest schema, or the reason why it has none."""
    name = f"Schema id {schema.id} (the newest of subject {subject.name})"
    if FORMATS[schema.kind] != subject.format.removeprefix("debezium-"):
        message = f"{name} is of kind {schema.kind}, and the spec's format is {subject.format}"
        return Finding("wrong", "registry", message, "Fix decode.format.")
    row = _row_schema(schema, subject)
    if row is None:
        return Finding("info", "registry", f"{name} is no change event's")
    return candidates_of_schema(row, messages, subject.part)


def find_model_changes(
    pipeline: Pipeline, selection: Selection, registry: SchemaRegistry | None, max_messages: int
) -> list[ModelChange]:
    """Returns the changes by which the model takes the fields of the newest messages and schemas.

    The pipeline's table takes each of them with its next window. Types that a registry
    states come before those that values suggest.

    Args:
        pipeline: the pipeline.
        selection: the topics.
        registry: the registry of the topics' schemas; None if there is none.
        max_messages: the number of newest messages of each topic-partition that are sampled.

    Raises:
        SpecError: the topic doesn't exist, or the model can't be used.
        UnreachableError: the cluster or the registry doesn't answer.
    """
    spec, columns = pipeline.spec, _columns_of(pipeline)
    sample = sample_topics(
        pipeline.broker, pipeline.reader, selection, max_messages, spec.source.on_removed
    )
    messages = sample.messages
    changes: list[ModelChange] = []
    if registry is not None:
        for topic in sample.topics:
            topic_messages = messages.filter(pc.equal(messages.column("topic"), topic))
            for subject in subjects_of(spec.decode, columns, topic):
                if subject.part == "value":
                    changes += _changes_by_registry(registry, subject, topic_messages)
    of_envelope = spec.decode.envelope if isinstance(spec.decode, ChangeSection) else ()
    of_value = _columns_of_value(spec.decode, columns, of_envelope)
    if not isinstance(spec.decode, CsvOptions):
        sampled = map(without_nulls, documents_in(spec.decode, messages, "value", of_value))
        documents = [document for document in sampled if document is not None]
        changes += find_changes(of_value, candidates_of(documents), documents)
    unusable = column_refusal(
        columns, table_refusal(spec.metadata, delta=spec.sink.kind == "delta")
    )
    change_by_path = dict[tuple[str, ...], ModelChange]()
    for change in changes:
        known = change_by_path.get(change.path)
        is_refused = len(change.path) == 1 and change.old is None and unusable(change.candidate)
        if (
            not is_refused
            and _is_taken(change, spec.sink)
            and (known is None or change.widens(known))
        ):
            change_by_path[change.path] = change
    return list(change_by_path.values())


def _changes_by_registry(
    registry: SchemaRegistry, subject: Subject, messages: pa.Table
) -> Iterator[ModelChange]:
    """Yields the changes by which the columns take the fields of a subject's newest schema."""
    for schema in registry.of_subject(subject.name, 1):
        candidates = _candidates_of_subject(schema, subject, messages)
        if not isinstance(candidates, Finding):
            names = {candidate.name for candidate in candidates}
            yield from find_changes(subject.columns.as_written(names).columns, candidates, None)


def _is_taken(change: ModelChange, sink: SinkSection) -> bool:
    """Returns whether a table takes the change with its next window, by `sink.evolve`."""
    evolve = getattr(sink, "evolve", "add_columns")
    is_rewrite = change.old is not None or (sink.kind == "delta" and ENTRIES in change.path)
    grows = evolve != "none" and getattr(sink, "format", "") != "csv"
    return evolve == "widen" or (grows and not is_rewrite)


def compare_fields(
    name: str,
    about: About,
    candidates: Sequence[Candidate],
    columns: Columns,
    misfits: Mapping[str, str],
    unusable: Refuses,
    documents: Sequence[Document],
) -> Iterator[Finding]:
    """Yields findings of fields and columns that don't match.

    Args:
        name: a description of the schema or the messages with the fields.
        about: whether the findings are about messages or a registry.
        candidates: the fields.
        columns: the columns.
        misfits: why columns can't come from their fields, by column.
        unusable: returns why a field can't be a column.
        documents: the messages, or a single document with all fields of the schema.
    """
    fields = {candidate.name for candidate in candidates}
    for column in columns.columns:
        column_name = column.name
        parts = [
            {*unmatched_paths(column.type, sampled_document.get(column_name), column_name)}
            for sampled_document in documents
        ]
        paths = Counter(path for document_paths in parts for path in document_paths)
        if paths:
            shown_paths = ", ".join(f"{path!a} ({n:,})" for path, n in paths.most_common(_SHOWN))
            problem = (
                f"doesn't keep all of {sum(map(bool, parts)):,} of {len(documents):,} documents"
            )
            yield Finding("info", about, f"Column {column_name} {problem}: {shown_paths}", _KEEPS)
        if column_name in misfits:
            yield Finding(
                "wrong", about, f"A column can't come from {name}: {misfits[column_name]}", _FIX
            )
        elif column_name not in fields and column.nullable:
            message = f"Column {column_name} is null: no field of {name} has its name"
            yield Finding("info", about, message)
        elif column_name not in fields and about == "registry":
            message = f"Column {column_name} can't be null, and no field of {name} has its name"
            yield Finding("wrong", about, message, _FIX)
    names = {column.name for column in columns.columns}
    for candidate in candidates:
        if candidate.name not in names:
            message = f"Field {candidate.name!a} of {name} is passed over: no column has its name"
            yield Finding("info", about, message, _column_of(candidate, unusable))


def _column_of(candidate: Candidate, unusable: Refuses) -> str:
    """Describes the column that a field could become, or says why it can't."""
    kind = candidate.guess.type
    reason = unusable(candidate) or (candidate.guess.note if kind is None else "")
    if reason or kind is None:
        return f"It can't be a column: {reason}"
    options = metadata_text(candidate)
    metadata = f"; with metadata={options}" if options else ""
    return f"It could be a column, nullable: {type_text(kind)}{metadata} ({_UPDATE})"
