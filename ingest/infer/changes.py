"""Change data in JSON: which tool's envelopes documents are, what the changed rows
hold, and by what they are told apart.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.cdc.change_metadata import is_called_after
from windrow.ingest.formats.cdc.envelope import (
    CANAL,
    DATABASE,
    DEBEZIUM,
    MAXWELL,
    SCHEMA,
    TABLE,
    ChangeKind,
    Envelope,
)
from windrow.ingest.formats.json.values import Reading
from windrow.ingest.infer.connect import row_offers
from windrow.ingest.infer.documents import document, offers_of, scalars
from windrow.ingest.infer.mysql import typed_offers
from windrow.ingest.infer.offer import Guess, Offer
from windrow.ingest.infer.proposal import Document, KeyAndValue, Proposal, Setting, counted

ENVELOPES: Mapping[str, Envelope] = {
    "debezium-json": DEBEZIUM,
    "canal-json": CANAL,
    "maxwell-json": MAXWELL,
}
"""The formats of change data that a sample tells."""

_SQL = scalars(Reading("sql"))
_OTHERS = "a regular expression; rows of others are passed over"


@dataclass(frozen=True)
class Event:
    """A message's envelope, the key that it came with, and, where it was there, the
    schema beside it.
    """

    key: bytes | None
    envelope: Document
    schema: Document | None = None

    def change(self, of: Envelope) -> ChangeKind:
        """What it says of the table."""
        if of.schema_change is not None and self.envelope.get(of.schema_change) is True:
            return ChangeKind.OTHER
        return dict(of.words)[self.envelope[of.kind]]


def events_of(format_: str, messages: Sequence[KeyAndValue]) -> list[Event]:
    """Those of the messages that are events of a format."""
    documents = [
        (m.key, found)
        for m in messages
        if m.value is not None and (found := document(m.value)) is not None
    ]
    wrapped = [
        Event(key, found["payload"], found["schema"])
        for key, found in documents
        if _is_wrapped(format_, found)
    ]
    return wrapped or [Event(key, found) for key, found in documents if _LOOKS[format_](found)]


def marks_of(format_: str, messages: Sequence[KeyAndValue]) -> int:
    """How many messages are of a format, and say nothing of rows."""
    documents = [
        found for m in messages if m.value is not None and (found := document(m.value)) is not None
    ]
    inside = [
        found["payload"] if found.keys() == {"schema", "payload"} else found for found in documents
    ]
    return sum(
        isinstance(found, dict) and ENVELOPES[format_].is_mark(found.keys()) for found in inside
    )


def _is_wrapped(format_: str, found: Document) -> bool:
    """Whether it is as Connect's JsonConverter writes it with its schema."""
    payload = found.get("payload")
    parts = (
        found.keys() == {"schema", "payload"}
        and isinstance(payload, dict)
        and isinstance(found["schema"], dict)
    )
    return format_ == "debezium-json" and parts and _LOOKS[format_](payload)


def _is_debezium(found: Any) -> bool:
    return _says_change(found, DEBEZIUM) and (
        isinstance(found.get("source"), dict) or {"before", "after"} <= found.keys()
    )


def _is_canal(found: Any) -> bool:
    return _says_change(found, CANAL) and {"isDdl", DATABASE, TABLE, CANAL.written} <= found.keys()


def _is_maxwell(found: Any) -> bool:
    return (
        _says_change(found, MAXWELL)
        and {DATABASE, TABLE, "ts"} <= found.keys()
        and "isDdl" not in found
    )


def _says_change(found: Mapping[str, Any], envelope: Envelope) -> bool:
    return found.get(envelope.kind) in [word for word, _ in envelope.words]


_LOOKS: Mapping[str, Callable[[Any], bool]] = {
    "debezium-json": _is_debezium,
    "canal-json": _is_canal,
    "maxwell-json": _is_maxwell,
}


def of_changes(format_: str, topic: str, events: Sequence[Event], table: str | None) -> Proposal:
    """Of a topic's events of one table. `table`: which one, where there are several.

    Raises:
        SpecError: there are rows of several tables, or none of the one that is asked
            for; or they are documents of MongoDB.
    """
    envelope = ENVELOPES[format_]
    events, included = _of_one_table(envelope, topic, events, table)
    texts = sum(isinstance(event.envelope.get(envelope.written), str) for event in events)
    events = [event for event in events if any(rows_of(envelope, event))]
    if not events and texts and envelope.text_row is not None:
        what = (
            f"The sampled events are {envelope.tool}'s of MongoDB, which write a document as a"
            " text, so nothing tells its columns"
        )
        do = (
            "Nothing was written. Let the connector unwrap them (transforms.unwrap.type:"
            " io.debezium.connector.mongodb.transforms.ExtractNewDocumentState), and come back:"
            " then they are JSON objects."
        )
        raise SpecError(what, "spec", do)
    if not events:
        what = f"The sampled {envelope.tool} events hold no row, so nothing tells its columns"
        do = (
            "Nothing was written. Sample more of the topic (--sample 100000), or come back when a"
            " row was changed; or begin with a template: windrow init --topic TOPIC."
        )
        raise SpecError(what, "spec", do)
    written = [event for event in events if event.change(envelope) is not ChangeKind.REMOVED]
    key = _primary_key(format_, written)
    counting = written if key else events
    offers = [
        _in_key(offer) if offer.name in key else offer for offer in _offers(format_, counting)
    ]
    settings = [Setting("format", format_), *included, *_forms(format_, events, offers)]
    hints = (
        []
        if key
        else [
            "nothing tells the rows' primary key: with `sink.mode: upsert` and one the table holds"  # noqa: ISC004
            " each row once"
        ]
    )
    if not key and envelope.kind not in {offer.name.casefold() for offer in offers}:
        settings.append(
            Setting("envelope", {envelope.kind: envelope.kind}, "what became of the row")
        )
        offers.append(
            Offer(
                envelope.kind,
                Guess(pa.string(), f"one of {', '.join(word for word, _ in envelope.words)}"),
                nullable=False,
            )
        )
    told_by = (
        f"{'guessed from' if counting[-1].schema is None else 'by the schema in'}"
        f" {counted(len(counting))} of {envelope.tool}"
    )
    return Proposal(tuple(offers), told_by, tuple(settings), tuple(hints), key, change_data=True)


def _in_key(offer: Offer) -> Offer:
    return Offer(offer.name, offer.guess, nullable=False, doc=offer.doc)


def _of_one_table(
    envelope: Envelope, topic: str, events: Sequence[Event], asked: str | None
) -> tuple[Sequence[Event], list[Setting]]:
    """The events of one table, and the settings that choose it, also where no other one
    is there yet.
    """
    named = [
        (event, _names(envelope, event))
        for event in events
        if event.change(envelope) is not ChangeKind.OTHER
    ]
    tables = Counter(".".join(names.values()) for _, names in named)
    if (asked is None and len(tables) > 1) or (asked is not None and asked not in tables):
        shown = ", ".join(
            f"{name!a} ({count:,})" if name else f"none that is named ({count:,})"
            for name, count in tables.most_common(10)
        )
        what = (
            f"The topic holds rows of {len(tables)} tables: {shown}"
            if asked is None
            else f"No sampled message holds a row of {asked!a}"
        )
        what += f", but of {shown}" if asked is not None and shown else ""
        raise SpecError(
            what,
            "spec",
            "Nothing was written. A pipeline reads one of them: --table DATABASE.TABLE.",
        )
    chosen = [(event, names) for event, names in named if asked in {None, ".".join(names.values())}]
    names = chosen[0][1] if chosen else {}
    if TABLE not in names or (
        envelope.names_topics and len(tables) == 1 and is_called_after(topic, names[TABLE])
    ):
        return [event for event, _ in chosen], []
    table = r"\.".join(_exactly(names[part]) for part in (SCHEMA, TABLE) if part in names)
    database = (
        [Setting("database_include", _exactly(names[DATABASE]), _OTHERS)]
        if DATABASE in names
        else []
    )
    return [event for event, _ in chosen], [*database, Setting("table_include", table, _OTHERS)]


def _names(envelope: Envelope, event: Event) -> dict[str, str]:
    """Whose row an event tells of, as people call it: the schema stands for the
    database that it is in.
    """
    found: dict[str, str] = {}
    for name, path in envelope.names:
        value: Any = event.envelope
        for field in path:
            value = value.get(field) if isinstance(value, dict) else None
        if isinstance(value, str):
            found[name] = value
    return {name: text for name, text in found.items() if name != DATABASE or SCHEMA not in found}


def _exactly(name: str) -> str:
    """The regular expression of one name."""
    return "".join(c if c.isalnum() or c == "_" else f"\\{c}" for c in name)


def rows_of(envelope: Envelope, event: Event) -> list[Document]:
    """The changed rows; none of what says nothing of rows."""
    if event.change(envelope) in {ChangeKind.OTHER, ChangeKind.TRUNCATED}:
        return []
    where = envelope.removed if event.change(envelope) is ChangeKind.REMOVED else envelope.written
    image = event.envelope.get(where)
    return [row for row in (image if isinstance(image, list) else [image]) if isinstance(row, dict)]


def _offers(format_: str, events: Sequence[Event]) -> list[Offer]:
    """The columns of the changed rows: by the types that the events state, or else by
    what their values are.
    """
    envelope = ENVELOPES[format_]
    rows = [row for event in events for row in rows_of(envelope, event)]
    if format_ == "debezium-json":
        stated = next(
            (event.schema for event in reversed(events) if event.schema is not None), None
        )
        return offers_of(rows) if stated is None else row_offers(stated, envelope.written)
    if format_ == "canal-json":
        return typed_offers(offers_of(rows), [event.envelope.get("mysqlType") for event in events])
    return offers_of(rows, _SQL)


def _forms(format_: str, events: Sequence[Event], offers: Sequence[Offer]) -> Iterator[Setting]:
    """How Debezium was told to write values."""
    if format_ != "debezium-json":
        return
    if events[0].schema is not None:
        yield Setting("schema_include", True, "each message has its schema beside the event")
    elif any(offer.guess.type == pa.date32() for offer in offers):
        yield Setting("dates", "iso-8601", "time.precision.mode: isostring")


# --------------------------------------------------------------------------------------------------


def _primary_key(format_: str, written: Sequence[Event]) -> tuple[str, ...]:
    """The columns that all events name as the key of their row, in that order; none, if
    some names none, or others.
    """
    envelope = ENVELOPES[format_]
    said = {_key_of(format_, event, row) for event in written for row in rows_of(envelope, event)}
    (key,) = said if len(said) == 1 else [()]
    kinds = {offer.name: offer.guess.type for offer in _offers(format_, written)}
    return key if key and all(_tells_apart(kinds.get(name)) for name in key) else ()


def _key_of(format_: str, event: Event, row: Document) -> tuple[str, ...]:
    """What an event says that tells its row apart from others; nothing, where the row
    doesn't say the same.
    """
    if format_ == "canal-json":
        names = event.envelope.get("pkNames")
        texts = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        return (
            tuple(dict.fromkeys(texts))
            if texts == names and all(row.get(name) is not None for name in texts)
            else ()
        )
    key = None if event.key is None else document(event.key)
    if key is not None and format_ == "debezium-json" and key.keys() == {"schema", "payload"}:
        key = key["payload"] if isinstance(key["payload"], dict) else None
    if key is not None and format_ == "maxwell-json":
        key = {
            name.removeprefix("pk."): value for name, value in key.items() if name.startswith("pk.")
        }
    same = key is not None and all(
        value is not None and row.get(name) == value for name, value in key.items()
    )
    return tuple(key) if same and key else ()


def _tells_apart(kind: pa.DataType | None) -> bool:
    """Whether a column of this type may be of a primary key."""
    if kind is None:
        return False
    return not pa.types.is_nested(kind) and not pa.types.is_floating(kind)
