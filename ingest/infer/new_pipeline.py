"""Writer of the two files of a new pipeline, from a template or inferred from a topic.

The second half of this module recognises the format and the columns of sampled messages.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import msgspec
import pyarrow as pa

from windrow.ingest.admin.peek import sample_topics
from windrow.ingest.config.limits import is_beyond_share
from windrow.ingest.config.load import load_spec, parse_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError, UnreachableError, format_count, join_first_few
from windrow.ingest.formats.kinds import make_decoder
from windrow.ingest.infer.candidates import omitted_fields, table_refusal
from windrow.ingest.infer.change_events import (
    ENVELOPES,
    events_of,
    is_flattened,
    is_wal2json,
    marks_of,
    propose_changes,
)
from windrow.ingest.infer.csv_lines import propose_lines
from windrow.ingest.infer.json_documents import parse_document
from windrow.ingest.infer.pipeline_files import (
    EXAMPLE,
    SCHEMA,
    SPEC,
    class_lines,
    class_name,
    reserved_names,
    schema_text,
    spec_text,
)
from windrow.ingest.infer.proposal import (
    KeyAndValue,
    Proposal,
    Setting,
    documents_of,
    propose_documents,
    propose_one_column,
    with_keys,
    with_nullable_nan,
    without_repeated_key,
    without_unusable,
)
from windrow.ingest.infer.registry_schemas import Framed, propose_by_registry, read_frames
from windrow.ingest.infer.request import PipelineRequest, SampledFormat
from windrow.ingest.infer.value_forms import ValueForms, recognise_forms, take_inside
from windrow.ingest.model.grid import BATCH, at_or_before, cron, label_after
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.reader import Reader, ReadPlan
from windrow.ingest.ports.schema_registry import SchemaRegistry, UsesSchemas
from windrow.ingest.registry.client import Registry
from windrow.ingest.source.enumerator.timestamp_search import of_seconds

PLACEHOLDER = "my-topic"
"""Topic of a template."""

_MOST_NAMED = 20
"""Limit of the omitted fields that are named in `Inferred.describe`."""

DELAY = timedelta(minutes=5)
_DELAY = "5m"
_CUT = (
    "of the sampled messages have timestamps finer than a microsecond, which are cut:"
    " `finer: dead` refuses them, a column of type String keeps them"
)
_PLAIN = re.compile(r"[^A-Za-z0-9_]+")


class Begun(msgspec.Struct, frozen=True):
    """Written files of a new pipeline.

    Attributes:
        pipeline: the pipeline's id.
        spec: the path of the spec.
        schema: the path of the schema.
        grid: the grid of windows.
        start: the start of the first window; null for micro-batches.
        window: the start of the first window that can be run. Null for micro-batches, and
            if no window is closed yet.
    """

    pipeline: str
    spec: str
    schema: str
    grid: str
    start: datetime | None
    window: datetime | None


class Inferred(Begun, frozen=True):
    """Written files of an inferred pipeline, and how well the sample fits them.

    Attributes:
        format: the format of the values.
        told_by: the source of the format and the columns.
        columns: the number of columns.
        sampled: the number of sampled messages.
        fitting: the number of sampled messages that aren't refused.
        refused: pairs of a reason and the number of messages that are refused for it.
        fit: False if all messages are refused, or more than the spec's limits allow.
        omitted: pairs of a field that is in no column and the reason.
        notes: hints for the user.
    """

    format: str
    told_by: str
    columns: int
    sampled: int
    fitting: int
    refused: tuple[tuple[str, int], ...]
    fit: bool
    omitted: tuple[tuple[str, str], ...] = msgspec.field(name="left_out")
    notes: tuple[str, ...]

    def describe(self, topic: str) -> list[str]:
        """Returns lines for the user: the written files, and the messages and fields left out."""
        columns = format_count(self.columns, "column")
        sampled = format_count(self.sampled, "sampled message")
        lines = [
            f"Wrote {self.spec} and {self.schema}.",
            f"{columns} of format {self.format}, {self.told_by}.",
            f"Of {sampled} of {topic} {self.fitting:,} would fit.",
        ]
        lines += self.describe_unfit()
        if not self.fit:
            lines += [
                (
                    "Don't run it yet: its windows would be refused or empty. Change both files,"
                    " and look again:"
                ),
                f"  windrow infer --check {shlex.quote(self.spec)}",
            ]
        return lines

    def describe_unfit(self) -> list[str]:
        """Returns lines for the user: refused messages, fields left out, and notes."""
        lines = list[str]()
        if self.refused:
            refused = ", ".join(f"{n:,}: {reason}" for reason, n in self.refused)
            lines.append(f"Others would be refused, {refused}; limits.max_dead_ratio bounds them.")
        lines += [f"Left out: {name!a}: {reason}." for name, reason in self.omitted[:_MOST_NAMED]]
        if len(self.omitted) > _MOST_NAMED:
            lines.append(f"Left out, too: {len(self.omitted) - _MOST_NAMED:,} more fields.")
        lines += [f"Note: {note}." for note in self.notes]
        return lines


Connect = Callable[[PipelineSpec], tuple[Broker, Callable[[ReadPlan], Reader]]]


def template(folder: Path, request: PipelineRequest, now: datetime) -> Begun:
    """Writes both files with example columns, without asking the cluster; makes the folder.

    Raises:
        SpecError: one of the files exists, or an option is wrong. Nothing is written then.
        UnreachableError: the folder can't be written.
    """
    name = _id(folder, request)
    refuse_present(folder, SPEC, SCHEMA)
    as_spec(folder, name, request)
    grid, start = _windows(request.grid, None, now)
    schema = schema_text(
        class_name(name), "The columns of a topic, an example: put your own here", EXAMPLE
    )
    example = Proposal((), "", {"format": Setting("json")})
    spec = spec_text(name, request, grid, start, _DELAY, example)
    write_files(folder, {SCHEMA: schema, SPEC: spec})
    return Begun(
        name, str(folder / SPEC), str(folder / SCHEMA), grid, start, _closed(grid, start, now)
    )


def infer(
    folder: Path, request: PipelineRequest, max_messages: int, connect: Connect, now: datetime
) -> Inferred:
    """Writes both files from a topic's messages, or a registry's schemas.

    Args:
        folder: the folder of the files; it is made if it doesn't exist.
        request: the topic, and hints.
        max_messages: the number of newest messages of each topic-partition that are
            sampled.
        connect: opens a spec's cluster, and makes its readers.
        now: the current time.

    Raises:
        SpecError: one of the files exists, an option is wrong, the topic doesn't exist, or
            its messages don't reveal their format and columns. Nothing is written then.
        UnreachableError: the cluster or the registry doesn't answer, or the folder
            can't be written.
    """
    refuse_present(folder, SPEC, SCHEMA)
    inferred, schema, spec = draft(folder, request, max_messages, connect, now)
    write_files(folder, {SCHEMA: schema, SPEC: spec})
    return inferred


def draft(
    folder: Path, request: PipelineRequest, max_messages: int, connect: Connect, now: datetime
) -> tuple[Inferred, str, str]:
    """Returns what `infer` does, and the texts of the schema and of the spec; writes nothing."""
    name, topic = _id(folder, request), request.topic
    asking = as_spec(folder, name, request)
    registry = asking.stated_registry
    sample = sample_topics(*connect(asking), asking.source.selection(), max_messages)
    proposal = without_unusable(
        propose(request, sample.messages, registry), table_refusal(DEFAULT, delta=True), topic
    )
    untimed = sample.begins is None and sample.messages.num_rows > 0
    grid, start = _windows(request.grid or (BATCH if untimed else None), sample.begins, now)
    resolved_request = msgspec.structs.replace(
        request, registry=None if registry is None else registry.url
    )
    nulls = sample.messages.column("value").null_count

    def files(reached: PipelineRequest) -> tuple[str, str]:
        head = f"The columns of topic {topic}, {proposal.source}: change what you know better"
        lines = class_lines(proposal.candidates, reserved_names())
        spec = spec_text(name, reached, grid, start, _DELAY, proposal, nulls=nulls)
        return schema_text(class_name(name), head, lines), spec

    tried = _try_files(
        *files(msgspec.structs.replace(resolved_request, cluster=None)), registry, sample.messages
    )
    known_rows = with_nullable_nan(without_repeated_key(proposal, tried.rows), tried.rows)
    if known_rows is not proposal:
        proposal = known_rows
        tried = _try_files(
            *files(msgspec.structs.replace(resolved_request, cluster=None)),
            registry,
            sample.messages,
        )
    inferred = Inferred(
        name,
        str(folder / SPEC),
        str(folder / SCHEMA),
        grid,
        start,
        _closed(grid, start, now),
        proposal.format,
        proposal.source,
        sum(candidate.usable for candidate in proposal.candidates),
        sample.messages.num_rows,
        sample.messages.num_rows - tried.refused.total(),
        tuple(tried.refused.most_common()),
        tried.fit,
        tuple(omitted_fields(proposal.candidates).items()),
        (
            *_notes(proposal, request, sample.messages),
            *((f"{tried.cut:,} {_CUT}",) if tried.cut else ()),
            *filter(None, (of_seconds(sample.begins),)),
        ),
    )
    return inferred, *files(resolved_request)


_ADVISED = ("set the type", "since 1970", "without an offset")
"""Words in the comments of columns that the user has to check before the first run."""
_UNUSED = (
    "the schema registry won't be asked when windows are run: the messages can be read without it"
)
_CHANGES = (
    "the messages seem to be changes of rows, as Debezium's ExtractNewRecordState writes them"
    " (`__deleted`, `__op`, `__source_ts_ms`, or keys without a value): here each change is a row"
    " more and none is deleted; `windrow help upsert` says how the table has each row once"
)
_MOST_NOTED = 20
"""Limit of the columns, and of the headers, that notes name."""


def _notes(proposal: Proposal, request: PipelineRequest, messages: pa.Table) -> Iterator[str]:
    """Yields hints that the user should know before the first run."""
    yield from proposal.hints
    advised = [
        f"column {candidate.name!a}: {candidate.guess.note}"
        for candidate in proposal.candidates
        if candidate.usable and any(words in candidate.guess.note for words in _ADVISED)
    ]
    yield from advised[:_MOST_NOTED]
    pairs = messages.select(["key", "value", "headers"]).to_pylist()
    deleted = any(pair["key"] and pair["value"] is None for pair in pairs)
    if not proposal.change_data and (
        deleted or is_flattened(candidate.name for candidate in proposal.candidates)
    ):
        yield _CHANGES
    names = dict.fromkeys(header["key"] for pair in pairs for header in pair["headers"] or ())
    if names:
        shown_names = ", ".join(map(ascii, [*names][:_MOST_NOTED]))
        yield f"the headers {shown_names} are in no column: decode.headers makes columns of them"
    if request.registry is not None and not proposal.asks_registry:
        yield _UNUSED


def _id(folder: Path, request: PipelineRequest) -> str:
    name = request.topic if request.topic != PLACEHOLDER else folder.absolute().name
    return request.id or _PLAIN.sub("_", name).strip("_")[:100] or "example"


def _closed(grid: str, start: datetime | None, now: datetime) -> datetime | None:
    """Returns the start of the first window if the window is closed, else None."""
    return None if start is None or label_after(grid, start) + DELAY > now else start


def refuse_present(folder: Path, *names: str) -> None:
    """Refuses files that exist, before anything is asked or written."""
    present = [str(folder / name) for name in names if (folder / name).exists()]
    if present:
        raise SpecError(
            f"{join_first_few(present)} {'exists' if len(present) == 1 else 'exist'} already",
            "spec",
            "Nothing was written. Name another folder, or move it away.",
        )


def write_files(folder: Path, text_by_name: Mapping[str, str]) -> None:
    """Writes new files only, and all of them or none; the spec comes last.

    So a spec always has its schema, and the same command works after a full disk.

    Raises:
        SpecError: one of the files exists.
        UnreachableError: the folder can't be written.
    """
    refuse_present(folder, *text_by_name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as new_files:
            for name, text in text_by_name.items():
                path = folder / name
                with path.open("x", encoding="utf-8") as file:
                    new_files.callback(path.unlink, missing_ok=True)
                    file.write(text)
            new_files.pop_all()
    except FileExistsError:
        refuse_present(folder, *text_by_name)
        raise SpecError(
            f"{folder} is no folder", "spec", "Name a folder, or a path where one can be made."
        ) from None
    except OSError as error:
        raise UnreachableError(
            f"{folder} can't be written: {error.strerror}",
            "setup",
            "Name a folder in which you may write and that has room, then run this again.",
        ) from error


def as_spec(folder: Path, name: str, request: PipelineRequest) -> PipelineSpec:
    """Makes a spec from the request, with short timeouts.

    Raises:
        SpecError: an option of the request is wrong.
    """
    patience = {"client": {"socket.timeout.ms": 5_000}, "tuning": {"stall_timeout": "10s"}}
    asks = {} if request.registry is None else {"format": "avro-confluent"}
    attributes: dict[str, Any] = {
        "id": name,
        "source": {**request.source, **patience},
        "window": {"grid": BATCH},
        "decode": {"schema": "schema:Row", **asks},
        "sink": {"path": "data"},
    }
    if request.grid not in {None, BATCH}:
        cron(str(request.grid))
    existing = next(
        ancestor
        for ancestor in (folder.absolute(), *folder.absolute().parents)
        if ancestor.is_dir()
    )
    return parse_spec(attributes, existing).model_copy(update={"folder": folder.absolute()})


@dataclass(frozen=True)
class _Tried:
    """Result of decoding a sample with the new files.

    Attributes:
        rows: the rows.
        refused: the number of refused messages, by reason.
        fit: False if all messages were refused, or more than the spec's limits allow.
        cut: the number of messages with timestamps finer than a microsecond.
    """

    rows: pa.Table
    refused: Counter[str]
    fit: bool
    cut: int


def _try_files(schema: str, spec: str, registry: Registry | None, messages: pa.Table) -> _Tried:
    """Decodes the sample with the two files.

    Args:
        schema: the text of the schema.
        spec: the text of the spec.
        registry: the schema registry; None if there is none.
        messages: the sample.

    Raises:
        SpecError: the schema doesn't fit the spec.
    """
    with TemporaryDirectory() as draft:
        for file, text in ((SCHEMA, schema), (SPEC, spec)):
            (Path(draft) / file).write_text(text, encoding="utf-8")
        parsed_spec = load_spec(Path(draft) / SPEC)
        key = parsed_spec.sink.key
        decoder = make_decoder(
            parsed_spec.decode,
            parsed_spec.folder,
            () if key is None else key.deletes,
            keeps_unavailable=parsed_spec.sink.keeps_unavailable,
        )
        if key is not None:
            key.refuse_unusable(decoder.columns.arrow_schema)
        if registry is not None and isinstance(decoder, UsesSchemas):
            decoder = decoder.asking(registry)
        batches = messages.combine_chunks().to_batches(max_chunksize=4096)
        decoded, columns = list(map(decoder.open(), batches)), decoder.columns
    refused = Counter(
        reason for decoded_batch in decoded for reason in decoded_batch.dead_reason.to_pylist()
    )
    is_beyond = is_beyond_share(
        refused.total(), messages.num_rows, parsed_spec.limits.max_dead_ratio
    )
    rows = pa.Table.from_batches(
        [decoded_batch.rows for decoded_batch in decoded], columns.arrow_schema
    )
    fit = not is_beyond and refused.total() < max(messages.num_rows, 1)
    return _Tried(rows, refused, fit, sum(decoded_batch.truncated for decoded_batch in decoded))


def _windows(
    grid: str | None, begins: datetime | None, now: datetime
) -> tuple[str, datetime | None]:
    """Returns the grid, and the start of its first window; micro-batches have no start.

    The default grid is hourly, or micro-batches if no hour of the log is over yet.

    Args:
        grid: the requested grid; None for the default.
        begins: the time of the log's first message; None if it isn't known.
        now: the current time.
    """
    start_of = min(begins, now) if begins is not None else now
    if grid is None:
        fresh = (
            begins is not None
            and label_after("hourly", at_or_before("hourly", start_of)) + DELAY > now
        )
        grid = BATCH if fresh else "hourly"
    return grid, None if grid == BATCH else at_or_before(grid, start_of)


# --------------------------------------------------------------------------------------------------


_DO = (
    "Nothing was written. Say what they are: --format csv --columns NAME,NAME, --format string or"
    " --format raw."
)


def propose(
    request: PipelineRequest, messages: pa.Table, registry: SchemaRegistry | None
) -> Proposal:
    """Proposes the format and the columns of a topic's messages.

    Raises:
        SpecError: the sample doesn't reveal them, or contradicts a hint. The error says
            which options to pass.
        WindrowError: raised by the registry.
    """
    topic, framing = request.topic, read_frames(messages, "value")
    plain = _messages(messages, request, framing)
    if (
        request.format is None
        and registry is not None
        and (framing.is_mostly_framed or not messages.num_rows)
        and not events_of("debezium-json", plain)
    ):
        return _refuse_unused(request, propose_by_registry(registry, topic, messages))
    _refuse_empty(topic, messages.num_rows, plain)
    forms = ValueForms(plain, {})
    if request.format in {None, "json"} and not framing.is_mostly_framed:
        forms = recognise_forms(plain)
    format_ = request.format or _recognise_format(topic, forms, framing)
    if format_ == "json":
        forms = take_inside(forms)
    proposal = _propose_by_format(topic, format_, forms, request)
    decode, hints = {**proposal.decode, **forms.settings}, (*proposal.hints, *forms.hints)
    return _refuse_unused(request, replace(proposal, decode=decode, hints=hints))


def _messages(messages: pa.Table, request: PipelineRequest, framing: Framed) -> list[KeyAndValue]:
    """Returns the messages as Python values, without Confluent's frames."""
    is_framed = str(request.format).endswith("json-schema-confluent") or (
        request.format is None and framing.is_mostly_framed
    )
    values = framing.values if is_framed else messages.column("value").to_pylist()
    return [
        KeyAndValue(key, value)
        for key, value in zip(messages.column("key").to_pylist(), values, strict=True)
    ]


def _recognise_format(topic: str, forms: ValueForms, framing: Framed) -> SampledFormat:
    messages = forms.messages
    valued = [message for message in messages if message.value is not None]
    documents = len(documents_of(messages))
    if framing.is_mostly_framed:
        if documents == framing.named:
            events = len(events_of("debezium-json", messages))
            return "debezium-json-schema-confluent" if events else "json-schema-confluent"
        message = (
            f"{framing.named:,} of {format_count(len(valued), 'message')} of topic {topic} begin"
            f" with the id of a schema in a registry, most with {framing.id}"
        )
        advice = (
            "Nothing was written. Name the registry that has it: --registry https://HOST:PORT, or"
            " --cluster NAME, whose windrow.yaml names one (of AWS Glue with its region)."
        )
        raise SpecError(message, "spec", f"{advice} If it is no id of a schema: --format raw.")
    if 2 * documents <= len(valued):
        raise SpecError(
            f"Of {format_count(len(valued), 'message')} of topic {topic}, JSON objects:"
            f" {documents:,}; {_describe_others(valued)}",
            "spec",
            f"{_DO} Plain Avro and Protobuf need their schema: windrow help formats.",
        )
    for format_ in () if "rows" in forms.settings else ENVELOPES:
        events = len(events_of(format_, messages))
        if events and events + marks_of(format_, messages) == documents:
            return next(name for name in get_args(SampledFormat) if name == format_)
        if events:
            raise SpecError(
                f"Of {format_count(documents, 'message')} of topic {topic} only {events:,} could be"
                f" {ENVELOPES[format_].tool}'s events",
                "spec",
                f"Nothing was written. Say what they are: --format {format_}, or --format json.",
            )
    if documents and all(is_wal2json(document) for _, document in documents_of(messages)):
        raise SpecError(
            f"The messages of topic {topic} are wal2json's, whose rows are lists of columns",
            "spec",
            "Nothing was written. No format makes rows of them: let Debezium read the database, or"
            " keep each message as it is with --format json.",
        )
    return "json"


_BEGINS = (
    (b"\xef\xbb\xbf", "beginning with a byte-order mark, which JSON doesn't have"),
    (b"[", "JSON arrays, and a row needs an object"),
    (
        b'"',
        (
            "texts inside JSON, as Connect's JsonConverter writes them, also for the outbox router:"
            " with its StringConverter they are what the text is"
        ),
    ),
    (b"{", "beginning as JSON objects, several in a message or broken ones"),
)


def _describe_others(valued: Sequence[KeyAndValue]) -> str:
    """Describes the values that aren't JSON objects, for an error."""
    others = [
        message.value.lstrip()
        for message in valued
        if message.value and parse_document(message.value) is None
    ]
    for begin, words in _BEGINS:
        if count := sum(value.startswith(begin) for value in others):
            return f"{words}: {count:,}"
    return "the format of the others is unknown"


def _propose_by_format(
    topic: str, format_: SampledFormat, forms: ValueForms, request: PipelineRequest
) -> Proposal:
    messages = forms.messages
    keys = [message.key for message in messages if message.value is not None]
    valued = len(keys)
    if format_ == "csv":
        if not request.columns:
            raise SpecError(
                "The messages don't have the names of CSV's fields",
                "spec",
                "Nothing was written. Give them in order: --columns id,name.",
            )
        return with_keys(propose_lines(messages, request.columns), keys)
    if format_ in {"string", "raw"}:
        return with_keys(propose_one_column(format_, valued), keys)
    if format_ in ENVELOPES:
        events = events_of(format_, messages)
        if not events:
            raise _no_message_error(topic, valued, f"{ENVELOPES[format_].tool}'s events")
        return propose_changes(format_, topic, events, request.table)
    if not documents_of(messages):
        raise _no_message_error(topic, valued, "JSON objects")
    return propose_documents(format_, messages, forms.schema)


def _no_message_error(topic: str, valued: int, kind: str) -> SpecError:
    return SpecError(
        f"None of {format_count(valued, 'message')} of topic {topic} could be {kind}", "spec", _DO
    )


def _refuse_empty(topic: str, sampled: int, messages: Sequence[KeyAndValue]) -> None:
    if any(message.value is not None for message in messages):
        return
    raise SpecError(
        f"No message of topic {topic} can be sampled"
        if not sampled
        else f"{format_count(sampled, 'message')} of topic {topic} sampled, none with a value",
        "spec",
        "Nothing was written. Produce one first; or, if a schema registry has the topic's schema,"
        " name it: --registry https://HOST:PORT; or begin with a template: windrow init --topic"
        " TOPIC.",
    )


def _refuse_unused(request: PipelineRequest, proposal: Proposal) -> Proposal:
    """Refuses hints that had no effect.

    Raises:
        SpecError: the request has such a hint.
    """
    if request.columns and proposal.format != "csv":
        raise SpecError(
            "--columns names the fields of CSV",
            "spec",
            "Nothing was written. Add --format csv, or leave it out.",
        )
    if request.table is not None and proposal.format not in ENVELOPES:
        raise SpecError(
            "--table chooses among the tables of change data",
            "spec",
            "Nothing was written. Leave it out.",
        )
    return proposal
