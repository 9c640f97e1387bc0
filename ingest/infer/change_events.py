"""Recognition of change events in JSON; proposes the columns and primary key of their rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import SpecError, format_count
from windrow.ingest.formats.cdc.change_metadata import is_called_after
from windrow.ingest.formats.cdc.envelope import (
    CANAL,
    DATABASE,
    DEBEZIUM,
    DMS,
    FLATTENED,
    MAXWELL,
    SCHEMA,
    TABLE,
    ChangeKind,
    Envelope,
)
from windrow.ingest.formats.shared import json_dialects
from windrow.ingest.infer.candidates import Candidate, TypeGuess, add_passed_over, free_name
from windrow.ingest.infer.json_documents import STRICT, candidates_of, parse_document, scalars
from windrow.ingest.infer.proposal import (
    Document,
    KeyAndValue,
    Proposal,
    Setting,
    documents_of,
    with_key,
)
from windrow.ingest.infer.stated_types import row_candidates, typed_candidates
from windrow.ingest.schema.message_fields import FieldPath
from windrow.ingest.settings.values import names_in

ENVELOPES: Mapping[str, Envelope] = {
    "debezium-json": DEBEZIUM,
    "debezium-json-schema-confluent": DEBEZIUM,
    "canal-json": CANAL,
    "maxwell-json": MAXWELL,
    "dms-json": DMS,
}
"""The formats of change data that can be recognised in sampled messages."""

DEBEZIUM_JSON = {"debezium-json", "debezium-json-schema-confluent"}

_DIALECTS = {
    "maxwell-json": scalars(json_dialects.MAXWELL, texts=True),
    "dms-json": scalars(json_dialects.EXACT, texts=True),
}
_NO_KEY = (
    "the rows' primary key is unknown: with `sink.mode: upsert` and a `primary_key` the table has"
    " each row once"
)
_SHARED = (
    "a message key was that of two rows at once, so it is no primary key: the table has a row for"
    " each change"
)
_KEY_OF_MESSAGES = (
    "the primary key is the messages' key: if the connector's `message.key.columns` makes it of"
    " other columns than the table's, rows replace others; then take `mode: append`"
)
_ADDED = ("__deleted", "__op", "__source_", "__ts_", "__table", "__lsn")
"""Beginnings of the names of fields that Debezium's ExtractNewRecordState adds to a row."""
_FLATTENED = (
    "Debezium's ExtractNewRecordState has taken the rows out of their events: `__deleted`,"
    " `__op: d` and tombstones are deletions, and with `delete.tombstone.handling.mode: drop` there"
    " are none"
)
_TOMBSTONES = (
    "a message without a value is only counted, because its key has its schema beside it: take"
    " `delete.tombstone.handling.mode: rewrite`, or keys without a schema"
)
_WAL2JSON = (
    *("xid", "timestamp", "origin", "lsn", "nextlsn", "schema", "table", "columns", "identity"),
    *("pk", "transactional", "prefix", "content"),
)
"""Fields of wal2json's messages, in both of its forms, beside the change or the action."""
_ID, _DOCUMENT = "id", "document"
"""The field of MongoDB's keys, and the column for its documents."""
_UPDATES = ("u", "UPDATE", "update")
OTHER_TABLES = "a regular expression; rows of other tables are passed over"


@dataclass(frozen=True)
class Event:
    """Change event.

    Attributes:
        key: the message's key.
        envelope: the envelope.
        tool: the envelope's form.
        schema: the schema in the message; None if the message has no schema.
    """

    key: bytes | None
    envelope: Document
    tool: Envelope
    schema: Document | None = None

    @property
    def change(self) -> ChangeKind:
        """Kind of the change."""
        tool, envelope = self.tool, self.envelope
        if tool.schema_change is not None and envelope.get(tool.schema_change) is True:
            return ChangeKind.OTHER
        if tool.deleted is not None and envelope.get(tool.deleted) == "true":
            return ChangeKind.REMOVED
        return next(
            (change for word, change in tool.words if word == self.word), ChangeKind.UPDATED
        )

    @property
    def word(self) -> Any:
        """Word for the kind of the change; None if the event has none."""
        return _at_path(self.envelope, self.tool.kind)


def _at_path(document: Document, path: FieldPath) -> Any:
    """Returns the value at a path of a document; None if there is none."""
    value: Any = document
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def events_of(format_: str, messages: Sequence[KeyAndValue]) -> list[Event]:
    """Returns the messages that are events of a format.

    If some events have a schema in their message, only these are returned. Rows without an
    envelope are returned if no event has one.
    """
    documents = documents_of(messages)
    wrapped = [
        (key, event["payload"], event["schema"])
        for key, event in documents
        if format_ == "debezium-json" and _has_schema(event)
    ]
    bare = [(key, event, None) for key, event in documents]
    for tool in (ENVELOPES[format_], *([FLATTENED] if format_ in DEBEZIUM_JSON else [])):
        for parts in (wrapped, bare):
            events = [
                Event(key, event, tool, schema)
                for key, event, schema in parts
                if (is_flattened(event) if tool.is_flat else _is_event(format_, event))
            ]
            if events:
                return events
    return []


def is_flattened(names: Iterable[str]) -> bool:
    """Returns whether a row has a field that Debezium's ExtractNewRecordState adds."""
    return any(name.startswith(_ADDED) for name in names)


def is_wal2json(document: Document) -> bool:
    """Returns whether a document is a message of wal2json, whose rows are lists of columns."""
    if isinstance(document.get("change"), list):
        return document.keys() <= {"change", *_WAL2JSON}
    return document.get("action") in [*"BCIUDTM"] and document.keys() <= {"action", *_WAL2JSON}


def marks_of(format_: str, messages: Sequence[KeyAndValue]) -> int:
    """Returns the number of messages that are marks of a tool: heartbeats, transaction markers."""
    inside = (
        event["payload"] if _has_schema(event) else event for _, event in documents_of(messages)
    )
    return sum(ENVELOPES[format_].is_mark(event.keys()) for event in inside)


def _has_schema(event: Document) -> bool:
    """Returns whether Connect's JsonConverter wrote the schema into the message."""
    return event.keys() == {"schema", "payload"} and all(
        isinstance(part, dict) for part in event.values()
    )


_BESIDE = {
    "canal-json": {"isDdl", DATABASE, TABLE, CANAL.written},
    "maxwell-json": {DATABASE, TABLE, "ts"},
    "dms-json": {"metadata"},
}
"""Fields that every event has in addition to the kind of change."""


def _is_event(format_: str, event: Document) -> bool:
    envelope = ENVELOPES[format_]
    if _at_path(event, envelope.kind) not in [word for word, _ in envelope.words]:
        return False
    if format_ in DEBEZIUM_JSON:
        return isinstance(event.get("source"), dict) or {"before", "after"} <= event.keys()
    sibling_keys = _BESIDE[format_]
    return sibling_keys <= event.keys() and ("isDdl" in sibling_keys) == ("isDdl" in event)


def propose_changes(
    format_: str, topic: str, events: Sequence[Event], table: str | None
) -> Proposal:
    """Proposes the columns of a table's rows.

    Args:
        format_: the format of the events.
        topic: the topic.
        events: the sampled events.
        table: the table's name, which is needed if there are rows of several tables.

    Raises:
        SpecError: there are rows of several tables and `table` is None; there is no row of
            `table`.
    """
    envelope = events[0].tool
    events, included = _choose_table(envelope, topic, events, table)
    texts = [event for event in events if isinstance(event.envelope.get(envelope.written), str)]
    events = [event for event in events if changed_rows(event)]
    if texts and not events and envelope.text_row is not None:
        return _texts_as_rows(format_, texts, included)
    if not events:
        raise no_rows(envelope)
    written = [event for event in events if event.change is not ChangeKind.REMOVED]
    key = _primary_key(format_, written)
    shared = key and _is_shared(key, events)
    key = () if shared else key
    counting = written if key else events
    candidates = _candidates(format_, counting)
    decode = {"format": Setting(format_), **included, **_forms(format_, events, candidates)}
    hints = (
        (_SHARED,)
        if shared
        else (_KEY_OF_MESSAGES,) * (format_ in DEBEZIUM_JSON)
        if key
        else (_NO_KEY,)
    )
    source = (
        f"{'guessed from' if counting[-1].schema is None else 'by the schema in'}"
        f" {format_count(len(counting), 'message')} of {envelope.tool}"
    )
    proposal = Proposal(tuple(candidates), source, decode, hints)
    if envelope.is_flat:
        bare = not any(_has_schema(parse_document(event.key or b"") or {}) for event in events)
        proposal = _as_flattened(proposal, key, "json" if bare else None)
    return as_changes(proposal, envelope, key)


def _as_flattened(proposal: Proposal, key: Sequence[str], key_format: str | None) -> Proposal:
    """Returns a proposal for rows without an envelope, whose tombstones delete by their key.

    Args:
        proposal: the proposal for the rows.
        key: the columns of the primary key; empty if it isn't known.
        key_format: the format of the messages' keys; None if `decode.key` can't read them.
    """
    decode = {**proposal.decode, "flattened": Setting(True, "rows of ExtractNewRecordState")}
    if key and key_format is not None:
        by_key = {"format": key_format, "fields": list(key)}
        decode["key"] = Setting(by_key, "a message without a value deletes the row of its key")
    hints = (*proposal.hints, _FLATTENED, *((_TOMBSTONES,) if key and key_format is None else ()))
    return replace(proposal, decode=decode, hints=hints)


def changes_of_schema(
    proposal: Proposal, of_key: Sequence[Candidate], *, flattened: bool
) -> Proposal:
    """Proposes a table of the rows in Debezium's events, whose columns a schema gives.

    Args:
        proposal: the proposal for the row.
        of_key: the fields of the messages' key; empty if not every message has a key.
        flattened: whether the rows have no envelope.
    """
    kinds = {candidate.name: candidate.guess.type for candidate in proposal.candidates}
    names = tuple(candidate.name for candidate in of_key)
    key = names if all(_may_be_key(kinds.get(name)) for name in names) else ()
    proposal = replace(proposal, hints=(_KEY_OF_MESSAGES,) if key else (_NO_KEY,))
    if flattened:
        proposal = _as_flattened(proposal, key, "avro-confluent")
    return as_changes(proposal, FLATTENED if flattened else DEBEZIUM, key)


def as_changes(proposal: Proposal, envelope: Envelope, key: tuple[str, ...]) -> Proposal:
    """Returns a proposal for changed rows, by their primary key.

    Without a key each change is a row, and gets a column for its kind.
    """
    # A default is for a field of the message, and these are fields of the row in it.
    candidates = [
        replace(candidate, nullable=candidate.nullable and candidate.name not in key, default="")
        for candidate in proposal.candidates
    ]
    decode = dict(proposal.decode)
    if not key and not envelope.is_flat:
        kind = free_name(envelope.kind[-1], candidates)
        path = ".".join(envelope.kind)
        others = decode["envelope"].value if "envelope" in decode else {}
        decode["envelope"] = Setting({**others, kind: path}, "the kind of the change")
        candidates.append(
            Candidate(
                kind,
                TypeGuess(pa.string(), f"one of {', '.join(word for word, _ in envelope.words)}"),
                nullable=False,
            )
        )
    return replace(
        proposal, candidates=tuple(candidates), decode=decode, primary_key=key, change_data=True
    )


def _texts_as_rows(
    format_: str, events: Sequence[Event], included: Mapping[str, Setting]
) -> Proposal:
    """Proposes a column for documents of MongoDB, which are texts, by their ids."""
    envelope, keys = events[0].tool, [parse_document(event.key or b"") or {} for event in events]
    key = (_ID,) if all(isinstance(key.get(_ID), str) for key in keys) else ()
    text = TypeGuess(pa.string(), "the document in MongoDB's Extended JSON")
    source = f"for {format_count(len(events), 'document')} of MongoDB"
    decode = {
        "format": Setting(format_),
        **included,
        **_forms(format_, events, ()),
        "envelope": Setting({_DOCUMENT: envelope.written}, "the document, a text"),
    }
    proposal = Proposal((Candidate(_DOCUMENT, text, nullable=not key),), source, decode)
    if key:
        id_ = Candidate(_ID, TypeGuess(pa.string(), "the document's _id"), nullable=False)
        proposal = with_key(proposal, [id_], "json")
    else:
        proposal = replace(proposal, hints=(_NO_KEY,))
    return as_changes(proposal, envelope, key)


def mongodb_by_registry() -> SpecError:
    """Returns the error for events of MongoDB whose columns a registry would give."""
    return SpecError(
        "The events are Debezium's of MongoDB, whose documents are texts, so their columns are"
        " unknown",
        "spec",
        "Nothing was written. Begin with a template (windrow init --topic TOPIC) that has the"
        " document as a column, decode.envelope: {document: after}; or let the connector unwrap"
        " the documents (transforms.unwrap.type:"
        " io.debezium.connector.mongodb.transforms.ExtractNewDocumentState): then they are rows.",
    )


def no_rows(envelope: Envelope) -> SpecError:
    """Returns the error for events without a row."""
    return SpecError(
        f"The sampled {envelope.tool} events have no row, so the columns are unknown",
        "spec",
        "Nothing was written. Sample more of the topic (--sample 100000), or try again after a"
        " row was changed; or begin with a template: windrow init --topic TOPIC.",
    )


def _choose_table(
    envelope: Envelope, topic: str, events: Sequence[Event], requested_table: str | None
) -> tuple[Sequence[Event], dict[str, Setting]]:
    """Returns the events of one table, and the settings that select this table."""
    named_events = [
        (event, _names(envelope, event)) for event in events if event.change is not ChangeKind.OTHER
    ]
    tables = Counter(".".join(names.values()) for _, names in named_events)
    if (requested_table is None and len(tables) > 1) or (
        requested_table is not None and requested_table not in tables
    ):
        shown_tables = ", ".join(
            f"{name!a} ({count:,})" if name else f"a table without a name ({count:,})"
            for name, count in tables.most_common(10)
        )
        message = (
            f"The topic holds rows of {format_count(len(tables), 'table')}: {shown_tables}"
            if requested_table is None
            else f"No sampled message holds a row of {requested_table!a}"
        )
        message += (
            f", but of {shown_tables}" if requested_table is not None and shown_tables else ""
        )
        raise SpecError(
            message,
            "spec",
            "Nothing was written. A pipeline reads one of them: --table DATABASE.TABLE.",
        )
    chosen_events = [
        (event, names)
        for event, names in named_events
        if requested_table in {None, ".".join(names.values())}
    ]
    names = chosen_events[0][1] if chosen_events else {}
    if TABLE not in names or (
        envelope.names_topics and len(tables) == 1 and is_called_after(topic, names[TABLE])
    ):
        return [event for event, _ in chosen_events], {}
    table = r"\.".join(re.escape(names[part]) for part in (SCHEMA, TABLE) if part in names)
    settings = {"table_include": Setting(table, OTHER_TABLES)}
    if DATABASE in names:
        settings = {
            "database_include": Setting(re.escape(names[DATABASE]), OTHER_TABLES),
            **settings,
        }
    return [event for event, _ in chosen_events], settings


def _names(envelope: Envelope, event: Event) -> dict[str, str]:
    """Returns the names of an event's table: DATABASE and TABLE, or SCHEMA and TABLE."""
    names: dict[str, str] = {}
    for name, path in envelope.names:
        value = _at_path(event.envelope, path)
        if isinstance(value, str):
            names[name] = value
    return {name: text for name, text in names.items() if name != DATABASE or SCHEMA not in names}


def changed_rows(event: Event) -> list[Document]:
    """Returns the rows in an event."""
    kind = event.change
    if kind in {ChangeKind.OTHER, ChangeKind.TRUNCATED}:
        return []
    field = event.tool.removed if kind is ChangeKind.REMOVED else event.tool.written
    image = event.envelope.get(field) if field else event.envelope
    return [row for row in (image if isinstance(image, list) else [image]) if isinstance(row, dict)]


def _candidates(format_: str, events: Sequence[Event]) -> list[Candidate]:
    """Returns the columns of the changed rows, by types in the events or by the values."""
    rows = [row for event in events for row in changed_rows(event)]
    if format_ in DEBEZIUM_JSON:
        stated = next(
            (event.schema for event in reversed(events) if event.schema is not None), None
        )
        if stated is None:
            return candidates_of(rows, STRICT)
        return add_passed_over(
            row_candidates(stated, events[0].tool.written),
            rows,
            "the newest event's schema lacks it",
        )
    if format_ == "canal-json":
        return typed_candidates(rows, [event.envelope.get("mysqlType") for event in events])
    return candidates_of(rows, _DIALECTS[format_])


def _forms(
    format_: str, events: Sequence[Event], candidates: Sequence[Candidate]
) -> dict[str, Setting]:
    """Returns the settings for the form in which Debezium wrote the values."""
    if format_ not in DEBEZIUM_JSON:
        return {}
    if events[0].schema is not None:
        return {"schema_include": Setting(True, "each message has a schema next to the event")}
    if any("date32" in str(candidate.guess.type) for candidate in candidates):
        return {"dates": Setting("iso-8601", "time.precision.mode: isostring")}
    return {}


def _primary_key(format_: str, written: Sequence[Event]) -> tuple[str, ...]:
    """Returns the columns that all events have as the key of their row; () if they differ."""
    keys = {_key_of(format_, event, row) for event in written for row in changed_rows(event)}
    (key,) = keys if len(keys) == 1 else [()]
    if not key:
        return ()
    kinds = {candidate.name: candidate.guess.type for candidate in _candidates(format_, written)}
    return key if all(_may_be_key(kinds.get(name)) for name in key) else ()


def _key_of(format_: str, event: Event, row: Document) -> tuple[str, ...]:
    """Returns the columns of the key in an event; () if its row has other values for them."""
    if format_ == "canal-json":
        names = event.envelope.get("pkNames")
        texts = names_in(names)
        return (
            tuple(dict.fromkeys(texts))
            if texts == names and all(row.get(name) is not None for name in texts)
            else ()
        )
    key = parse_document(event.key or b"") or {}
    if format_ in DEBEZIUM_JSON and _has_schema(key):
        key = key["payload"]
    if format_ == "maxwell-json":
        key = {
            name.removeprefix("pk."): value for name, value in key.items() if name.startswith("pk.")
        }
    same = all(value is not None and row.get(name) == value for name, value in key.items())
    return tuple(key) if same else ()


def _is_shared(key: Sequence[str], events: Sequence[Event]) -> bool:
    """Returns whether an inserted row has the key of a different row that exists already."""
    row_by_key = dict[str, Document]()
    for event in events:
        removed = event.change is ChangeKind.REMOVED
        new = event.change is ChangeKind.WRITTEN and event.word not in _UPDATES
        for row in changed_rows(event):
            row_key = repr([row.get(name) for name in key])
            if new and row_by_key.get(row_key, row) != row:
                return True
            row_by_key[row_key] = row
            if removed:
                del row_by_key[row_key]
    return False


def _may_be_key(kind: pa.DataType | None) -> bool:
    """Returns whether a column of a type may be in a primary key."""
    return kind is not None and not pa.types.is_nested(kind) and not pa.types.is_floating(kind)
