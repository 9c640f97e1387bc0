"""The ledger's entries: one table, with a value for each pipeline, kind and key.

A kind defines its keys and values; all else is the same for all kinds. An existing entry
isn't changed, with these exceptions: the ledger's id, the table of a pipeline, a rebase,
and the pins, the refusal and the copied receipt of a window. Keys sort like the labels,
windows or numbers that they name, so "the newest" and "the nearest" are steps in the
primary key's index.

Values are JSON. The value of a window grows with its topic-partitions, and is similar for
each of them: a thousand are a megabyte of JSON, and a tenth of that compressed. So long
texts are compressed. Short ones stay readable for a person who looks into the database.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from sys import maxsize
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import (
    Column,
    Connection,
    Executable,
    MetaData,
    Select,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    select,
)

from windrow.ingest.errors import DamagedError
from windrow.ingest.model.boundary import Boundary, Label
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.ledger_records import Pause, PoisonPill, RefusedWindow
from windrow.ingest.model.lookup import Pin
from windrow.ingest.model.owner import LEDGER_ANEW
from windrow.ingest.model.plan import Plan, Window
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.source import FrozenStop, Initializer
from windrow.ingest.model.writer_schema import WriterSchema

K = TypeVar("K")
V = TypeVar("V")

_KEY = Text().with_variant(Text(collation="C"), "postgresql")
"""A text that sorts by its bytes, also on a server with another language."""

TABLE = Table(
    "windrow_ledger_2",
    MetaData(),
    Column("pipeline", _KEY, primary_key=True),
    Column("kind", _KEY, primary_key=True),
    Column("key", _KEY, primary_key=True),
    Column("value", Text, nullable=False),
    Column("recorded", Text, nullable=False),
)
"""The table. The number in its name is the version of the format. Other versions are refused."""

PRIVILEGES = ("SELECT", "INSERT", "DELETE")
"""The privileges of a user of PostgreSQL who works with a table that another user made."""

ITSELF = ""
"""The pipeline id of entries about the ledger itself. No pipeline has this id."""

ONLY = ""
"""The key of a kind that has one entry per pipeline."""


def sortable(label: Label) -> str:
    """Converts a label to a text of fixed width, so that texts sort as labels do.

    Sequence numbers sort after instants, because digits come before letters.
    """
    if isinstance(label, int):
        return f"batch-{label:019d}"
    return label.astimezone(UTC).isoformat(timespec="microseconds")


def _window(window: Window) -> str:
    return f"{sortable(window.start)}/{sortable(window.end)}"


@dataclass(frozen=True)
class Kind(Generic[K, V]):
    """A kind of entries.

    Attributes:
        name: its name in the table.
        key: converts a key to a text.
        value: the class of its values.
    """

    name: str
    key: Callable[[K], str]
    value: type[V]


IDENTITY = Kind[str, str]("identity", str, str)
"""The ledger's id."""

GRID = Kind[str, str]("grid", str, str)
SINK = Kind[str, str]("sink", str, str)
"""The identity of the table that a pipeline writes to."""

BOUNDARY = Kind[Label, Boundary]("boundary", sortable, Boundary)
REBASE = Kind[Label, Boundary]("rebase", sortable, Boundary)
"""The boundary that a rebase recorded for the window that starts at the label."""

PAUSE = Kind[int, Pause]("pause", lambda number: f"{number:019d}", Pause)
POISON_PILL = Kind[PoisonPill, PoisonPill](
    "poison-pill",
    lambda pill: f"{pill.topic_id}/{pill.partition:010d}/{pill.offset:019d}/{pill.number:019d}",
    PoisonPill,
)
MICRO_BATCH = Kind[str, int]("micro-batch", str, int)
"""The number of the micro-batch that a request runs (`ports.ledger.Ledger.assign`)."""

STOP = Kind[Initializer, FrozenStop](
    "stop", lambda position: sha256(to_json(position).encode()).hexdigest(), FrozenStop
)
"""The end of micro-batches.

Its key is a digest of the position in the spec, because the position may be too long for a
key.
"""

PLAN = Kind[Window, Plan]("plan", _window, Plan)
GENERATION = Kind[tuple[Window, str], int](
    "generation", lambda key: f"{_window(key[0])}/{key[1]}", int
)
"""The generation of a window that a replacing request writes."""

PINS = Kind[tuple[Window, int], tuple[Pin, ...]](
    "pins", lambda key: f"{_window(key[0])}/{key[1]}", tuple[Pin, ...]
)
"""The versions that the lookups of a window's generation ask."""

REFUSED = Kind[Window, RefusedWindow]("refused", _window, RefusedWindow)
RECEIPT = Kind[Window, Receipt]("receipt", _window, Receipt)
RECEIPT_TEXT = Kind[Window, msgspec.Raw]("receipt", _window, msgspec.Raw)
"""The entries of `RECEIPT`, as the texts that the sink has."""

SCHEMA = Kind[str, WriterSchema]("schema", str, WriterSchema)
"""Writers' schemas by their ids."""


_KIND = (TABLE.c.pipeline == bindparam("pipeline"), TABLE.c.kind == bindparam("kind"))
_KEY_IS = TABLE.c.key == bindparam("key")
_OF_KIND = select(TABLE.c.value).where(*_KIND)
_GET = _OF_KIND.where(_KEY_IS)
_BELOW = _OF_KIND.where(TABLE.c.key < bindparam("key")).order_by(TABLE.c.key.desc()).limit(1)
_ABOVE = _OF_KIND.where(TABLE.c.key > bindparam("key")).order_by(TABLE.c.key).limit(1)
_HIGHEST = _OF_KIND.order_by(TABLE.c.key.desc()).limit(bindparam("count"))
_NEWEST_FIRST = _OF_KIND.order_by(TABLE.c.recorded.desc(), TABLE.c.key.desc())
_IN_ANY_PIPELINE = select(TABLE.c.value).where(TABLE.c.kind == bindparam("kind")).limit(1)
_INSERT = insert(TABLE)
_DELETE = delete(TABLE).where(*_KIND, _KEY_IS)


@dataclass(frozen=True)
class Entries:
    """The entries of one pipeline, within a transaction.

    All methods that read raise DamagedError if a value can't be read.

    Attributes:
        connection: the transaction's connection; None if the ledger doesn't exist, so that
            it has no entries.
        pipeline: the id of the pipeline.
        ledger: the ledger's name, for messages.
    """

    connection: Connection | None
    pipeline: str
    ledger: str

    def get(self, kind: Kind[K, V], key: K) -> V | None:
        """Returns the value of a key; None if there is none."""
        return self._get_one(kind, _GET, key)

    def below(self, kind: Kind[K, V], key: K) -> V | None:
        """Returns the value of the nearest key below a key; None if there is none."""
        return self._get_one(kind, _BELOW, key)

    def above(self, kind: Kind[K, V], key: K) -> V | None:
        """Returns the value of the nearest key above a key; None if there is none."""
        return self._get_one(kind, _ABOVE, key)

    def highest(self, kind: Kind[Any, V], count: int | None = None) -> list[V]:
        """Returns the values with the highest keys, in ascending order of keys; by default all."""
        return self._all(kind, _HIGHEST, count=maxsize if count is None else count)[::-1]

    def newest_first(self, kind: Kind[Any, V]) -> list[V]:
        """Returns all values, the last recorded one first."""
        return self._all(kind, _NEWEST_FIRST)

    def in_any_pipeline(self, kind: Kind[Any, Any]) -> bool:
        """Returns whether the ledger has an entry of a kind for any pipeline."""
        return bool(self._all(kind, _IN_ANY_PIPELINE))

    def add(self, kind: Kind[K, V], key: K, value: V) -> V:
        """Inserts the value of a key that has none; returns the value."""
        self._run(
            kind,
            _INSERT,
            key=kind.key(key),
            value=pack(msgspec.json.encode(value).decode()),
            recorded=sortable(datetime.now(UTC)),
        )
        return value

    def put_if_absent(self, kind: Kind[K, V], key: K, value: V) -> V:
        """Inserts a value if its key has none; returns the recorded value."""
        recorded = self.get(kind, key)
        return self.add(kind, key, value) if recorded is None else recorded

    def put(self, kind: Kind[K, V], key: K, value: V) -> None:
        """Inserts a value, or replaces the existing one."""
        self.remove(kind, key)
        self.add(kind, key, value)

    def remove(self, kind: Kind[K, Any], key: K) -> None:
        """Removes the value of a key, if there is one."""
        self._run(kind, _DELETE, key=kind.key(key))

    def _get_one(self, kind: Kind[K, V], question: Select[Any], key: K) -> V | None:
        return next(iter(self._all(kind, question, key=kind.key(key))), None)

    def _all(self, kind: Kind[Any, V], question: Select[Any], **more: object) -> list[V]:
        rows = [] if self.connection is None else self._run(kind, question, **more).scalars()
        try:
            return [_parsed(stored, kind.value) for stored in rows]
        except (msgspec.DecodeError, ValueError) as error:
            raise DamagedError(
                f"The ledger {self.ledger} holds a {kind.name} of pipeline {self.pipeline} that"
                " can't be read",
                "ledger",
                LEDGER_ANEW,
            ) from error

    def _run(self, kind: Kind[Any, Any], statement: Executable, **more: object) -> Any:
        assert self.connection is not None
        return self.connection.execute(
            statement, {"pipeline": self.pipeline, "kind": kind.name, **more}
        )


_parsed: Callable[..., Any] = lru_cache(maxsize=16)(
    lambda stored, kind: from_json(unpack(stored), kind)
)
"""Parses a stored text, or returns its value from a cache.

A run reads the boundaries around its window several times.
"""

LONG = 16 * 1024
"""A text with more characters than this is compressed."""

_COMPRESSED = "zlib:"
"""The prefix of a compressed text. No JSON begins with it."""


def pack(value: str) -> str:
    """Compresses a long text."""
    if len(value) <= LONG:
        return value
    return _COMPRESSED + base64.b64encode(zlib.compress(value.encode(), 1)).decode()


def unpack(stored: str) -> str:
    """Returns the text that a value of the column `value` stands for.

    Raises:
        ValueError: it is damaged.
    """
    if not stored.startswith(_COMPRESSED):
        return stored
    content = base64.b64decode(stored.removeprefix(_COMPRESSED), validate=True)
    try:
        return zlib.decompress(content).decode()
    except zlib.error as error:
        raise ValueError(str(error)) from None
