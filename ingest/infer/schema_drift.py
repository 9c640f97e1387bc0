"""Finds schema drift between a topic and a pipeline. Writes nothing.

That is, newest messages that the pipeline's decoder or rules would refuse, and newest
schemas of a registry that its columns don't fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.admin.findings import Finding, exit_code
from windrow.ingest.admin.sample import sample_topics
from windrow.ingest.config.pipeline import LimitsSpec, is_beyond_share
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.formats.cdc.kind import ChangeSection
from windrow.ingest.formats.confluent.kind import RecordOptions, RegistryOptions
from windrow.ingest.formats.kind import FormatSection
from windrow.ingest.infer.candidates import (
    Candidate,
    Refuses,
    column_refusal,
    example,
    passed_over,
    struct_type,
    table_refusal,
)
from windrow.ingest.infer.changes import ENVELOPES, events_of, rows_of
from windrow.ingest.infer.documents import candidates_of, document
from windrow.ingest.infer.json_schema import json_candidates
from windrow.ingest.infer.pipeline_files import metadata_text, type_text
from windrow.ingest.infer.proposal import Document, KeyAndValue
from windrow.ingest.infer.registered import (
    FORMATS,
    Part,
    behind_frames,
    candidates_of_schema,
    path_in,
)
from windrow.ingest.model.refusals import in_words
from windrow.ingest.model.source import Selection
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import Decode
from windrow.ingest.ports.schemas import SchemaRegistry
from windrow.ingest.registry.client import Subjects
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.schemas import decoder_for
from windrow.ingest.schema.columns import Columns

_SHOWN = 5
_KEEPS = (
    "A Struct keeps the parts that it names (names that are data want a List of key and value), a"
    " Float64 the digits that a double has (more want a Decimal)."
)
_FIX = "Fix the schema, or the producer."
_BATCH = 4096


class RefusalCount(msgspec.Struct, frozen=True):
    """The number of messages that would be dead letters for one reason, and the first one.

    `what`: the reason in words, without payload.
    """

    stage: str
    reason: str
    what: str
    messages: int
    topic: str
    partition: int
    offset: int


class DriftReport(msgspec.Struct, frozen=True):
    """The result of a check: of `sampled` messages, `fitting` would become rows.

    `fitting` is null if the messages couldn't be decoded; a finding says why.
    """

    pipeline: str
    sampled: int
    fitting: int | None
    unfit: tuple[RefusalCount, ...]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """1 if anything is wrong, 3 if something couldn't be checked, else 0."""
        return exit_code(self.findings)


def check(
    pipeline: Pipeline, selection: Selection, registry: SchemaRegistry | None, most: int
) -> DriftReport:
    """Checks newest messages and a registry's newest schemas by a pipeline's spec.

    Args:
        pipeline: the pipeline.
        selection: the topics to check.
        registry: the registry of the topics' schemas; None: there is none.
        most: most messages of each topic-partition.

    Raises:
        SpecError: there is no such topic, or the model can't be used.
        UnreachableError: the cluster doesn't answer.
    """
    spec, columns = pipeline.spec, pipeline.decoder().columns
    sample = sample_topics(
        pipeline.broker, pipeline.reader, selection, most, spec.source.on_removed
    )
    unfit: tuple[RefusalCount, ...] | None = None
    findings: list[Finding] = []
    try:
        unfit = tried(sample.messages, _verdict_of(pipeline, sample.messages))
    except (RefusedError, UnreachableError, SpecError) as error:
        findings.append(_of_error(error, "messages"))
    sampled, dead = sample.messages.num_rows, sum(one.messages for one in unfit or ())
    findings += refusals(unfit or (), sampled, spec.limits)
    if not sampled:
        findings.append(Finding("info", "messages", "No message can be sampled"))
    unusable = column_refusal(
        columns, table_refusal(spec.metadata, delta=spec.sink.kind == "delta")
    )
    findings += unknown_fields(spec.decode, columns, sample.messages, unusable)
    if registry is not None:
        subjects = (
            subject
            for topic in sample.topics
            for subject in subjects_of(spec.decode, columns, topic)
        )
        findings += [
            finding
            for subject in subjects
            for finding in _of_registry(registry, subject, sample.messages, unusable)
        ]
    return DriftReport(
        spec.id, sampled, None if unfit is None else sampled - dead, unfit or (), tuple(findings)
    )


def _of_error(
    error: RefusedError | UnreachableError | SpecError, about: Literal["messages", "registry"]
) -> Finding:
    what = f"{error.what}; first {error.place}" if error.place else error.what
    return Finding(
        "unchecked" if isinstance(error, UnreachableError) else "wrong", about, what, error.do
    )


def _verdict_of(pipeline: Pipeline, messages: pa.Table) -> Decode:
    """Decodes and transforms messages as a run would."""
    decoder = decoder_for(pipeline, sorted(messages.column("topic").unique().to_pylist()))
    decode, transform = decoder.open(), pipeline.transform().open()
    return lambda messages: transform(decode(messages))


def tried(messages: pa.Table, verdict: Decode) -> tuple[RefusalCount, ...]:
    """Counts the messages that would be dead letters by reason, the most frequent first."""
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
        whys = (
            column.to_pylist()
            for column in (decoded.dead_stage, decoded.dead_reason, decoded.dead_detail)
        )
        for stage, reason, detail, *position in zip(*whys, *positions, strict=True):
            kind = stage, reason, in_words(reason, detail)
            counts[kind] += 1
            first.setdefault(kind, (position[0], position[1], position[2]))
    return tuple(RefusalCount(*kind, count, *first[kind]) for kind, count in counts.most_common())


def refusals(unfit: Sequence[RefusalCount], sampled: int, limits: LimitsSpec) -> Iterator[Finding]:
    """Findings of refused messages: wrong if their share would refuse a window, else info."""
    dead = sum(one.messages for one in unfit)
    by_stage = Counter[str]()
    for one in unfit:
        by_stage[one.stage] += one.messages
    for one in unfit:
        limited = ((dead, limits), (by_stage[one.stage], limits.of(one.stage)))
        beyond = any(
            is_beyond_share(count, sampled, limit.max_dead_ratio) for count, limit in limited
        )
        what = (
            f"{one.messages:,} of {sampled:,} would be dead letters, {one.stage} {one.reason}:"
            f" {one.what}"
        )
        where = f"first {one.topic}[{one.partition}]@{one.offset}"
        yield Finding(
            "wrong" if beyond else "info",
            "messages",
            f"{what}; {where}",
            _FIX if beyond else "The limits allow so many.",
        )


def unknown_fields(
    section: FormatSection, columns: Columns, messages: pa.Table, unusable: Refuses
) -> Iterator[Finding]:
    """Findings of fields in JSON documents without a column, and of columns without a field."""
    of_envelope = section.envelope if isinstance(section, ChangeSection) else ()
    of_value = Columns(
        tuple(
            column for column in section.part.of(columns).columns if column.name not in of_envelope
        )
    )
    parts = [("documents", documents_in(section.format, messages, "value"), of_value)]
    if section.key is not None:
        documents = documents_in(section.key.format, messages, "key")
        parts.append(("keys", documents, section.key.part.of(columns)))
    for what, documents, of_part in parts:
        if documents:
            yield from compared(
                f"{len(documents):,} sampled {what}",
                "messages",
                candidates_of(documents),
                of_part,
                {},
                unusable,
                documents,
            )


def documents_in(format_: str, messages: pa.Table, part: Part) -> list[Document]:
    """The JSON objects whose fields become columns; none if the format isn't JSON."""
    if format_ in ENVELOPES:
        values = messages.column("value").to_pylist()
        events = events_of(format_, [KeyAndValue(None, value) for value in values])
        return [row for event in events for row in rows_of(ENVELOPES[format_], event)]
    if format_ not in {"json", "json-schema-confluent"}:
        return []
    values = (
        messages.column(part).to_pylist() if format_ == "json" else behind_frames(messages, part)
    )
    return [
        found for value in values if value is not None and (found := document(value)) is not None
    ]


@dataclass(frozen=True)
class Subject:
    """A subject with the schemas of a topic's keys or values, and their columns."""

    name: str
    topic: str
    part: Part
    format: str
    columns: Columns


def names_schemas(section: FormatSection) -> bool:
    """Returns whether keys or values are in a format with a schema registry."""
    return any(
        part is not None and part.format in FORMATS.values() for part in (section, section.key)
    )


def subjects_of(section: FormatSection, columns: Columns, topic: str) -> Iterator[Subject]:
    """The subjects of a topic's keys and values, if their format has a schema registry."""
    of_names = section.written_with if isinstance(section, RecordOptions) else ()
    of_value = Columns(
        tuple(column for column in section.part.of(columns).columns if column.name not in of_names)
    )
    parts: list[tuple[Part, object, str, Columns]] = [("value", section, section.format, of_value)]
    if section.key is not None:
        parts.append(("key", section.key, section.key.format, section.key.part.of(columns)))
    for part, options, format_, of_part in parts:
        if format_ in FORMATS.values():
            subjects = (
                options.subjects(part)
                if isinstance(options, RegistryOptions)
                else Subjects(part=part)
            )
            yield from (Subject(name, topic, part, format_, of_part) for name in subjects.of(topic))


def _of_registry(
    registry: SchemaRegistry, subject: Subject, messages: pa.Table, unusable: Refuses
) -> list[Finding]:
    """Findings of a subject's newest schema, or why it can't be checked."""
    try:
        newest = registry.of_subject(subject.name, 1)
        if not newest:
            return [Finding("info", "registry", f"There is no subject {subject.name}")]
        of_topic = messages.filter(pc.equal(messages.column("topic"), subject.topic))
        return list(of_schema(newest[0], subject, of_topic, unusable))
    except (RefusedError, UnreachableError, SpecError) as error:
        return [_of_error(error, "registry")]


def of_schema(
    schema: WriterSchema, subject: Subject, messages: pa.Table, unusable: Refuses
) -> Iterator[Finding]:
    """Findings of a subject's newest schema. `messages`: the sampled ones of its topic."""
    name = f"schema id {schema.id} (the newest of subject {subject.name})"
    if FORMATS[schema.kind] != subject.format:
        what = (
            f"{name[0].upper()}{name[1:]} is of kind {schema.kind}, and the spec's format is"
            f" {subject.format}"
        )
        yield Finding("wrong", "registry", what, "Fix decode.format.")
        return
    path = path_in(messages, subject.part) if schema.kind == "PROTOBUF" else ()
    candidates = candidates_of_schema(schema, messages, subject.part)
    columns = subject.columns.as_written({candidate.name for candidate in candidates}).columns
    unfit, whole = mismatches(schema, path, columns), example(struct_type(candidates))
    yield from compared(name, "registry", candidates, columns, unfit, unusable, [whole])


def compared(
    name: str,
    about: Literal["messages", "registry"],
    candidates: Sequence[Candidate],
    columns: Columns,
    unfit: Mapping[str, str],
    unusable: Refuses,
    documents: Sequence[Document],
) -> Iterator[Finding]:
    """Findings of fields and columns that don't match.

    `name`: the schema or the messages that have the fields; `unfit`: columns that can't
    come from their field, each with the reason; `documents`: the messages, or one that
    has all of the schema.
    """
    for column in columns.columns:
        parts = [
            found
            for one in documents
            if (found := {*passed_over(column.type, one.get(column.name), column.name)})
        ]
        paths = Counter(path for found in parts for path in found)
        if paths:
            shown = ", ".join(f"{path!a} ({n:,})" for path, n in paths.most_common(_SHOWN))
            yield Finding(
                "info",
                about,
                f"Column {column.name} doesn't keep all of {len(parts):,} of {len(documents):,}"
                f" documents: {shown}",
                _KEEPS,
            )
    fields = {candidate.name for candidate in candidates}
    for column in columns.columns:
        if column.name in unfit:
            yield Finding(
                "wrong", about, f"A column can't come from {name}: {unfit[column.name]}", _FIX
            )
        elif column.name not in fields and column.nullable:
            yield Finding(
                "info", about, f"Column {column.name} is null: no field of {name} has its name"
            )
        elif column.name not in fields and about == "registry":
            yield Finding(
                "wrong",
                about,
                f"Column {column.name} can't be null, and no field of {name} has its name",
                _FIX,
            )
    names = {column.name for column in columns.columns}
    for candidate in candidates:
        if candidate.name not in names:
            why = unusable(candidate) or (
                candidate.guess.note if candidate.guess.type is None else ""
            )
            could = (
                f"It can't be a column: {why}"
                if why or candidate.guess.type is None
                else _column_of(candidate, candidate.guess.type)
            )
            yield Finding(
                "info",
                about,
                f"Field {candidate.name!a} of {name} is passed over: no column has its name",
                could,
            )


def _column_of(candidate: Candidate, kind: pa.DataType) -> str:
    """Describes the column that a field could become."""
    options = metadata_text(candidate)
    metadata = f"; with metadata={options}" if options else ""
    return f"It could be a column, nullable: {type_text(kind)}{metadata}"


_TEXTS = (pa.types.is_string, pa.types.is_timestamp, pa.types.is_date, pa.types.is_decimal)
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_timestamp)
_TAKES: Sequence[tuple[Callable[[pa.DataType], bool], Sequence[Callable[[pa.DataType], bool]]]] = (
    (pa.types.is_string, _TEXTS),
    (pa.types.is_timestamp, _TEXTS),
    (pa.types.is_date, _TEXTS),
    (pa.types.is_integer, _NUMBERS),
    (pa.types.is_floating, _NUMBERS),
    (pa.types.is_boolean, (pa.types.is_boolean,)),
    (pa.types.is_list, (pa.types.is_list,)),
    (pa.types.is_struct, (pa.types.is_struct, pa.types.is_map)),
    (pa.types.is_map, (pa.types.is_map, pa.types.is_struct)),
)
"""The column types that values of a JSON Schema's types may become, coerced or not."""


def mismatches(schema: WriterSchema, path: Sequence[int], columns: Columns) -> dict[str, str]:
    """The columns that can't come from the schema's field of their name, with the reasons.

    `path`: the message type of a Protobuf schema.

    Raises:
        SpecError: the schema can't be read.
    """
    if schema.kind == "AVRO":
        return _by_avro(schema, columns)
    if schema.kind == "PROTOBUF":
        return _by_protobuf(schema, path, columns)
    return _by_json(schema, columns)


def _each(
    columns: Columns, names: Collection[str], judge: Callable[[Columns], object]
) -> dict[str, str]:
    """Judges each column that has one of the names alone; returns the errors."""
    wrong: dict[str, str] = {}
    for column in columns.columns:
        try:
            judge(Columns((column,) if column.name in names else ()))
        except SpecError as error:
            wrong[column.name] = error.what.partition(": ")[2]
    return wrong


def _by_avro(schema: WriterSchema, columns: Columns) -> dict[str, str]:
    from windrow.ingest.formats.avro.fit import check as check_fit  # each kind on demand
    from windrow.ingest.formats.avro.resolve import resolved
    from windrow.ingest.formats.avro.schema import AvroSchema
    from windrow.ingest.infer.avro import roots_of

    def judge(written: AvroSchema, one: Columns) -> None:
        check_fit(resolved(written, one), one)

    only = columns.columns[0].name if len(columns.columns) == 1 else None
    wrong: dict[str, str] = {}
    for written in roots_of(schema, only):
        wrong |= _each(columns, dict(written.records[written.root].fields), partial(judge, written))
    return wrong


def _by_protobuf(schema: WriterSchema, path: Sequence[int], columns: Columns) -> dict[str, str]:
    from windrow.ingest.formats.protobuf.fields import reader
    from windrow.ingest.infer.protobuf import message_of

    kind = message_of(schema, path)
    return _each(columns, kind.fields_by_name, lambda one: reader(kind, one, "null"))


def _by_json(schema: WriterSchema, columns: Columns) -> dict[str, str]:
    """Finds only impossible conversions: the decoder doesn't validate by the JSON Schema."""
    types = {candidate.name: candidate.guess.type for candidate in json_candidates(schema)}
    return {
        column.name: f"{column.name}: a value of type {kind} can't become {column.type}"
        for column in columns.columns
        if (kind := types.get(column.name)) is not None and not _takes(kind, column.type)
    }


def _takes(field: pa.DataType, column: pa.DataType) -> bool:
    return any(test(column) for of, tests in _TAKES if of(field) for test in tests)
