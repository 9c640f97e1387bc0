"""What of a topic doesn't fit a pipeline any more: its newest messages, by the real
decoder and rules, and a registry's newest schemas.

Reads only. The comparisons are pure functions from values to findings; `check` fetches the values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.admin.findings import Finding
from windrow.ingest.admin.sample import sample_topics
from windrow.ingest.config.pipeline import LimitsSpec, is_beyond_share
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.formats.cdc.kind import ChangeSection
from windrow.ingest.formats.confluent.kind import RecordOptions, RegistryOptions
from windrow.ingest.formats.kind import FormatSection
from windrow.ingest.infer.changes import ENVELOPES, events_of, rows_of
from windrow.ingest.infer.documents import document, offers_of
from windrow.ingest.infer.misfits import misfits
from windrow.ingest.infer.offer import (
    Offer,
    Refusal,
    metadata_text,
    type_text,
    unfit_for_table,
    unusable_beside,
)
from windrow.ingest.infer.proposal import Document, KeyAndValue
from windrow.ingest.infer.registered import FORMATS, Part, behind_frames, offers_of_schema, path_in
from windrow.ingest.model.refusals import in_words
from windrow.ingest.model.source import Selection
from windrow.ingest.model.writer_schema import WriterSchema
from windrow.ingest.ports.decoder import Decode
from windrow.ingest.ports.schemas import SchemaRegistry
from windrow.ingest.registry.subjects import Subjects
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.schemas import decoder_for
from windrow.ingest.schema.columns import Columns

_FIX = "Fix the schema, or the producer."
_BATCH = 4096


class Unfit(msgspec.Struct, frozen=True):
    """Messages that would be dead letters for one reason at one place, and where the
    first of them lies.

    `what`: free of payload.
    """

    stage: str
    reason: str
    what: str
    messages: int
    topic: str
    partition: int
    offset: int


class Checked(msgspec.Struct, frozen=True):
    """Of `sampled` messages `fitting` are none that would be dead letters; what the
    others are, and what else there is to say.

    `fitting` is null where the messages couldn't be judged; a finding says why.
    """

    pipeline: str
    sampled: int
    fitting: int | None
    unfit: tuple[Unfit, ...]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """1 if anything is wrong, 3 if something could not be looked at, else 0."""
        levels = {f.level for f in self.findings}
        return (
            RefusedError.exit_code
            if "wrong" in levels
            else UnreachableError.exit_code
            if "unchecked" in levels
            else 0
        )


def check(
    pipeline: Pipeline, selection: Selection, registry: SchemaRegistry | None, most: int
) -> Checked:
    """Sample the newest messages, and hold them and the registry's newest schemas
    against the pipeline's model.

    Args:
        pipeline: whose model, format and limits count.
        selection: which of its topics are looked at.
        registry: that of its topics' schemas; None: there is none.
        most: so many messages of each topic-partition at most.

    Raises:
        SpecError: there is no such topic, or the model can't be used.
        UnreachableError: the cluster doesn't answer.
    """
    spec, columns = pipeline.spec, pipeline.decoder().columns
    sample = sample_topics(
        pipeline.broker, pipeline.reader, selection, most, spec.source.on_removed
    )
    unfit: tuple[Unfit, ...] | None = None
    findings: list[Finding] = []
    try:
        unfit = tried(sample.messages, _verdict_of(pipeline, sample.messages))
    except (RefusedError, UnreachableError, SpecError) as error:
        findings.append(_of_error(error, "messages"))
    sampled, dead = sample.messages.num_rows, sum(one.messages for one in unfit or ())
    findings += refusals(unfit or (), sampled, spec.limits)
    if not sampled:
        findings.append(Finding("info", "messages", "There is none that can be sampled"))
    unusable = unusable_beside(
        columns, unfit_for_table(spec.metadata, delta=spec.sink.kind == "delta")
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
    return Checked(
        spec.id, sampled, None if unfit is None else sampled - dead, unfit or (), tuple(findings)
    )


def _of_error(
    error: RefusedError | UnreachableError | SpecError, about: Literal["messages", "registry"]
) -> Finding:
    what = f"{error.what}; first {error.place}" if error.place else error.what
    return Finding(
        "unchecked" if isinstance(error, UnreachableError) else "wrong", about, what, error.do
    )


# --------------------------------------------------------------------------------------------------


def _verdict_of(pipeline: Pipeline, messages: pa.Table) -> Decode:
    """What a run would say of some messages."""
    decoder = decoder_for(pipeline, sorted(messages.column("topic").unique().to_pylist()))
    decode, transform = decoder.open(), pipeline.transform().open()
    return lambda messages: transform(decode(messages))


def tried(messages: pa.Table, verdict: Decode) -> tuple[Unfit, ...]:
    """The messages that would be dead letters, by what is wrong with them; the most
    frequent first.
    """
    counts, first = (
        Counter[tuple[str, str, str]](),
        dict[tuple[str, str, str], tuple[str, int, int]](),
    )
    for batch in messages.combine_chunks().to_batches(max_chunksize=_BATCH):
        decoded = verdict(batch)
        places = (
            batch.column(name).take(decoded.dead_index).to_pylist()
            for name in ("topic", "partition", "offset")
        )
        whys = (
            column.to_pylist()
            for column in (decoded.dead_stage, decoded.dead_reason, decoded.dead_detail)
        )
        for stage, reason, detail, *place in zip(*whys, *places, strict=True):
            kind = stage, reason, in_words(reason, detail)
            counts[kind] += 1
            first.setdefault(kind, (place[0], place[1], place[2]))
    return tuple(Unfit(*kind, count, *first[kind]) for kind, count in counts.most_common())


def refusals(unfit: Sequence[Unfit], sampled: int, limits: LimitsSpec) -> Iterator[Finding]:
    """What is wrong with messages; only worth knowing where a window with as large a
    share of such messages would be committed.
    """
    dead = sum(one.messages for one in unfit)
    by_stage = Counter[str]()
    for one in unfit:
        by_stage[one.stage] += one.messages
    for one in unfit:
        held = ((dead, limits), (by_stage[one.stage], limits.of(one.stage)))
        beyond = any(is_beyond_share(count, sampled, limit.max_dead_ratio) for count, limit in held)
        what = (
            f"{one.messages:,} of {sampled:,} would be dead letters, {one.stage} {one.reason}:"
            f" {one.what}"
        )
        where = f"first {one.topic}[{one.partition}]@{one.offset}"
        yield Finding(
            "wrong" if beyond else "info",
            "messages",
            f"{what}; {where}",
            _FIX if beyond else "The limits allow as many.",
        )


def unknown_fields(
    section: FormatSection, columns: Columns, messages: pa.Table, unusable: Refusal
) -> Iterator[Finding]:
    """Fields of JSON documents, or of rows in them, that no column is for, and columns
    for which none of them has a field.
    """
    documents = documents_in(section.format, messages)
    if documents:
        beside = section.envelope if isinstance(section, ChangeSection) else ()
        of_value = Columns(
            tuple(
                column for column in section.part.of(columns).columns if column.name not in beside
            )
        )
        yield from compared(
            f"{len(documents):,} sampled documents",
            "messages",
            offers_of(documents),
            of_value,
            {},
            unusable,
        )


def documents_in(format_: str, messages: pa.Table) -> list[Document]:
    """The JSON objects whose fields become columns; none, of another format."""
    if format_ in ENVELOPES:
        values = messages.column("value").to_pylist()
        events = events_of(format_, [KeyAndValue(None, value) for value in values])
        return [row for event in events for row in rows_of(ENVELOPES[format_], event)]
    if format_ not in {"json", "json-schema-confluent"}:
        return []
    values = messages.column("value").to_pylist() if format_ == "json" else behind_frames(messages)
    return [
        found for value in values if value is not None and (found := document(value)) is not None
    ]


# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A subject of the registry, whose schemas the keys or values of a topic have; and
    the columns that come from these.
    """

    name: str
    topic: str
    part: Part
    format: str
    columns: Columns


def names_schemas(section: FormatSection) -> bool:
    """Whether keys or values are in one of Confluent's formats."""
    return any(
        part is not None and part.format in FORMATS.values() for part in (section, section.key)
    )


def subjects_of(section: FormatSection, columns: Columns, topic: str) -> Iterator[Subject]:
    """The subjects of a topic's messages, as far as they are in one of Confluent's formats."""
    beside = section.written_with if isinstance(section, RecordOptions) else ()
    of_value = Columns(
        tuple(column for column in section.part.of(columns).columns if column.name not in beside)
    )
    parts: list[tuple[Part, object, str, Columns]] = [("value", section, section.format, of_value)]
    if section.key is not None:
        parts.append(("key", section.key, section.key.format, section.key.part.of(columns)))
    for part, options, format_, of_part in parts:
        if format_ in FORMATS.values():
            yield from (
                Subject(name, topic, part, format_, of_part)
                for name in _subjects(options, part).of(topic)
            )


def _subjects(options: object, part: Part) -> Subjects:
    if isinstance(options, RegistryOptions):
        return Subjects(options.subject_name_strategy, options.records, part)
    return Subjects(part=part)


def _of_registry(
    registry: SchemaRegistry, subject: Subject, messages: pa.Table, unusable: Refusal
) -> list[Finding]:
    """What a subject's newest schema says."""
    try:
        newest = registry.of_subject(subject.name, 1)
        if not newest:
            return [Finding("info", "registry", f"There is no subject {subject.name}")]
        of_topic = messages.filter(pc.equal(messages.column("topic"), subject.topic))
        return list(of_schema(newest[0], subject, of_topic, unusable))
    except (RefusedError, UnreachableError, SpecError) as error:
        return [_of_error(error, "registry")]


def of_schema(
    schema: WriterSchema, subject: Subject, messages: pa.Table, unusable: Refusal
) -> Iterator[Finding]:
    """What a subject's newest schema says. `messages`: those of its topic that were sampled."""
    name = f"schema id {schema.id} (the newest of subject {subject.name})"
    if FORMATS[schema.kind] != subject.format:
        what = (
            f"{name[0].upper()}{name[1:]} is of kind {schema.kind}, and the spec's format is"
            f" {subject.format}"
        )
        yield Finding("wrong", "registry", what, "Fix decode.format.")
        return
    path = path_in(messages, subject.part) if schema.kind == "PROTOBUF" else ()
    offers = offers_of_schema(schema, messages, subject.part)
    columns = subject.columns.as_written({offer.name for offer in offers}).columns
    yield from compared(name, "registry", offers, columns, misfits(schema, path, columns), unusable)


def compared(
    name: str,
    about: Literal["messages", "registry"],
    offers: Sequence[Offer],
    columns: Columns,
    unfit: Mapping[str, str],
    unusable: Refusal,
) -> Iterator[Finding]:
    """Fields and columns against each other.

    `name`: what the fields are of; `unfit`: columns that can't come from their field, and why.
    """
    fields = {offer.name for offer in offers}
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
    for offer in offers:
        if offer.name not in names:
            why = unusable(offer) or (offer.guess.note if offer.guess.type is None else "")
            could = (
                f"It can't be a column: {why}"
                if why or offer.guess.type is None
                else _column_of(offer, offer.guess.type)
            )
            yield Finding(
                "info",
                about,
                f"Field {offer.name!a} of {name} is passed over: no column has its name",
                could,
            )


def _column_of(offer: Offer, kind: pa.DataType) -> str:
    """What a schema says to have a field as a column."""
    metadata = f"; with metadata={said}" if (said := metadata_text(offer.guess)) else ""
    return f"It could be a column, nullable: {type_text(kind)}{metadata}"
