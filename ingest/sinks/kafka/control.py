"""The control topic: what a Kafka table knows of itself, as records of a compacted
topic with one partition.

They are written in the same transactions as the messages; behind them, where there are
no transactions.

    ["owner"]                     whose table it is
    ["split", window, number]     what was published of one split of a window, until it is committed
    ["receipt", window, part]     a committed window's receipt, with what its splits were; a long
                            one in several parts

Without transactions nobody is fenced, and two runs of a window may write receipts at
once, part by part. So the key of theirs ends with the attempt, and the first receipt
that is whole is the window's, for all readers, for they read in one order.

Behind a fence it is read to the end that the log had when it was asked, with all that
lies below decided: a record behind a transaction of somebody else that is still open
can't be seen yet, and to take it for absent would publish it twice. Who only looks
reads what is decided: else nobody could get past a transaction of a run that died, and
fence it.
"""

from __future__ import annotations

import copy
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar, cast

import confluent_kafka as ck
import msgspec
from confluent_kafka import KafkaException

from windrow.ingest.errors import DamagedError, UnreachableError
from windrow.ingest.kafka.clients import CLIENTS
from windrow.ingest.kafka.codes import END, GONE, PASSING
from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.retry import LOOK_SECONDS, POLL_SECONDS, SEEN_SECONDS
from windrow.ingest.kafka.scan import scanning
from windrow.ingest.model.codec import from_json
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered, Plan, covered
from windrow.ingest.model.receipt import RECEIPT_VERSION, Checksum, Receipt
from windrow.ingest.ports.sink import OWNER, Unreadable
from windrow.ingest.sinks.kafka.topics import LogSeen, SinkTopics
from windrow.ingest.sinks.table_store import StoredReceipt

T = TypeVar("T")
Key = tuple[str | int, ...]
Record = tuple[bytes, bytes | None]
"""A record's key and value; without a value, it takes the one before it away."""

FORM = 1
"""Of records. One with a higher number was written by a later windrow."""

PART_BYTES = 512 * 1024
_MOST = 500


class OffsetSpan(msgspec.Struct, frozen=True, array_like=True):
    """Where messages of a split lie in a target topic: from the first of them to the
    last, with others between them.
    """

    topic: str
    partition: int
    first: int
    last: int


class PublishedSplit(msgspec.Struct, frozen=True):
    """What was published of one split.

    `same`: as `stage.StagedMessages` has it; `checksum`: of the rows, as the attempt staged them.
    """

    window: str
    number: int
    digest: str
    topic: str
    partition: int
    start: int
    stop: int
    rows: int
    same: str
    checksum: Checksum
    attempt: str
    places: tuple[OffsetSpan, ...] = ()
    form: int = FORM


class _Bound(msgspec.Struct, frozen=True):
    """`start`: the log's first offset when the table was bound, or bound again with its
    receipts put back.
    """

    owner: TableOwner
    form: int = FORM
    start: int = 0


class _Closed(msgspec.Struct, frozen=True):
    receipt: msgspec.Raw
    splits: tuple[PublishedSplit, ...]
    form: int = FORM


class _Planned(msgspec.Struct, frozen=True):
    plan: Plan
    version: int


class _Numbered(msgspec.Struct, frozen=True):
    form: int


class ClosedWindow(msgspec.Struct, frozen=True):
    """A committed window: its receipt's text, packed; which offsets it holds; what its
    splits were.
    """

    packed: bytes
    ranges: tuple[Covered, ...]
    splits: tuple[PublishedSplit, ...]

    @property
    def text(self) -> str:
        """The receipt's exact text."""
        return zlib.decompress(self.packed).decode()


class Held:
    """What has been read of the control topic, from the log's first offset on.

    `position`: the next offset to read; `version`: how many records of ours were read; `whole`:
    nothing behind them is undecided. Never changed once it was handed out.
    """

    def __init__(self, name: str = "", start: int = 0) -> None:
        self._name, self.start = name, start
        self.position, self.version, self.whole = start, 0, True
        self._bound: _Bound | None = None
        self.windows: dict[str, ClosedWindow] = {}
        self.splits: dict[str, dict[int, PublishedSplit]] = {}
        self.damaged: dict[str, str] = {}
        self._parts: dict[tuple[str, str], list[bytes]] = {}

    def copied(self) -> Held:
        """A copy that can be read on into."""
        own = copy.copy(self)
        own.windows, own.damaged = dict(self.windows), dict(self.damaged)
        own.splits = {key: dict(splits) for key, splits in self.splits.items()}
        own._parts = {  # noqa: SLF001
            key: list(parts) for key, parts in self._parts.items()
        }
        return own

    @property
    def is_new(self) -> bool:
        """Whether no table was bound to it, and none can have been."""
        found = self.windows or self.splits or self.damaged
        return self._bound is None and not found and self.deleted is None

    @property
    def owner(self) -> TableOwner:
        """Whose table it is.

        Raises:
            DamagedError: the record of it can't be read, so nobody knows; or receipts may be gone.
        """
        if self.deleted is not None:
            raise DamagedError(self.deleted, "setup", DO_DELETED)
        if self._bound is None:
            none = f"the control topic {self._name} has records and doesn't say whose table it is"
            raise DamagedError(self.damaged.get(OWNER, none), "setup", DO_DAMAGED)
        return self._bound.owner

    def committed(self) -> Collection[str]:
        """The keys of all windows that have a receipt, also one that can't be read."""
        return self.windows.keys() | self.damaged.keys()

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt | Unreadable]:
        """The receipts of some windows, or of all, in the order of their keys."""
        for key in sorted(self.committed() if keys is None else keys):
            if key in self.damaged:
                yield Unreadable(key, self.damaged[key], DO_DAMAGED)
            elif key in self.windows:
                yield StoredReceipt(key, self.windows[key].text, None)

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        """The keys of committed windows that hold any of these offsets."""
        return {
            key
            for key, kept in self.windows.items()
            if any(a.overlaps(b) for a in ranges for b in kept.ranges)
        }

    @property
    def deleted(self) -> str | None:
        """How the log lost its first records, if it did: the binding is among them, and
        receipts may be.
        """
        if self.start <= (0 if self._bound is None else self._bound.start):
            return None
        return (
            f"the control topic {self._name} begins at offset {self.start}: what stood before,"
            " receipts of windows too, was deleted"
        )

    @property
    def is_bound(self) -> bool:
        """Whether it says whose table it is, and that no receipt is missing."""
        return self._bound is not None and self.deleted is None

    def take(self, key: bytes, value: bytes | None, parts: bytes | None) -> None:
        """One record more; others than ours are passed over.

        `parts`: what the header says of a receipt that is cut.
        """
        match _key(key):
            case ("owner",) if value is not None:
                self._checked(OWNER, lambda: self._bind(value))
            case ("split", str(window), int(number)):
                self._checked(window, lambda: self._split(window, number, value))
            case ("receipt", str(window), int(part), *rest) if value is not None:
                self._checked(
                    window,
                    lambda: self._receipt(
                        window, str(rest[0]) if rest else "", part, int(parts or b"1"), value
                    ),
                )

    def _checked(self, about: str, take: Callable[[], None]) -> None:
        """What can't be read is remembered, for a window of its own is all that it says
        something of.
        """
        self.version += 1
        try:
            take()
        except (msgspec.MsgspecError, ValueError) as error:
            self.damaged[about] = (
                f"a record of {about} in the control topic can't be read: {type(error).__name__}"
            )

    def _bind(self, value: bytes) -> None:
        self._bound = _read(value, _Bound)
        self.damaged.pop(OWNER, None)

    def _split(self, window: str, number: int, value: bytes | None) -> None:
        if value is None:
            self.splits.get(window, {}).pop(number, None)
        else:
            self.splits.setdefault(window, {})[number] = _read(value, PublishedSplit)

    def _receipt(self, window: str, attempt: str, part: int, parts: int, value: bytes) -> None:
        """Those of one attempt stand one behind the other. What is there already stays."""
        by = (window, attempt)
        if part == 0:
            self._parts[by] = []
        found = self._parts.setdefault(by, [])
        found.append(value)
        if len(found) < parts:
            return
        closed = _read(b"".join(self._parts.pop(by)), _Closed)
        text = bytes(closed.receipt)
        planned = from_json(text, _Planned)
        if planned.version == RECEIPT_VERSION:
            from_json(
                text, Receipt
            )  # one that can't be read is damaged; another form has its words
        kept = ClosedWindow(zlib.compress(text, 1), covered(planned.plan), closed.splits)
        self.windows.setdefault(window, kept)
        self.damaged.pop(window, None)


_RESTORE = "windrow verify SPEC --restore-receipts puts back what the ledger has copies of"
DO_DAMAGED = (
    f"Something else wrote into the control topic; nothing was published. {_RESTORE}; else restore"
    " the topic from a backup."
)
DO_DELETED = (
    "Was its cleanup.policy not compact alone, or were records deleted by hand? Set it to compact."
    f" {_RESTORE}."
)


def _read(value: bytes, kind: type[T]) -> T:
    if msgspec.json.decode(value, type=_Numbered).form > FORM:
        what = "the control topic holds a record of a later windrow"
        raise DamagedError(what, "commit", "Update windrow to the version that wrote it.")
    return msgspec.json.decode(value, type=kind)


def _key(key: bytes) -> Key:
    try:
        found = msgspec.json.decode(key, type=list[str | int])
    except (msgspec.MsgspecError, ValueError):
        return ()
    return tuple(found)


# --------------------------------------------------------------------------------------------------


def owner_record(owner: TableOwner, start: int = 0) -> Record:
    """Whose table it is.

    `start`: the log's first offset, where nothing of what stood before it is missing.
    """
    return b'["owner"]', msgspec.json.encode(_Bound(owner, start=start))


def split_record(split: PublishedSplit) -> Record:
    """What was published of a split."""
    return _split_key(split.window, split.number), msgspec.json.encode(split)


def receipt_records(
    window: str, text: str, splits: tuple[PublishedSplit, ...], attempt: str | None = None
) -> Iterator[Record]:
    """A window's receipt in as many parts as it needs; the records of its splits are in
    it, and so are taken away.

    `attempt`: whose receipt it is, where another one may be writing at the same moment.
    """
    own = () if attempt is None else (attempt,)
    whole = msgspec.json.encode(_Closed(msgspec.Raw(text.encode()), splits))
    for part, at in enumerate(range(0, len(whole), PART_BYTES)):
        yield msgspec.json.encode(["receipt", window, part, *own]), whole[at : at + PART_BYTES]
    yield from ((_split_key(window, split.number), None) for split in splits)


def parts_of(records: Sequence[Record]) -> list[tuple[str, bytes]]:
    """The header of each record of a receipt: into how many parts it is cut."""
    return [("parts", str(sum(value is not None for _, value in records)).encode())]


def _split_key(window: str, number: int) -> bytes:
    return msgspec.json.encode(["split", window, number])


# --------------------------------------------------------------------------------------------------


def window_of(key: bytes) -> str | None:
    """The window that a record is about, by its key; None: it is about none, or not ours."""
    match _key(key):
        case ("split" | "receipt", str(window), *_):
            return window
    return None


def headers_of(message: ck.Message) -> list[tuple[str, bytes | None]]:
    """A message's headers."""
    return cast("list[tuple[str, bytes | None]]", message.headers() or [])


def _is_end(message: ck.Message) -> bool:
    error = message.error()
    return error is not None and error.code() == END


def arrived(consumer: ck.Consumer, seconds: float) -> list[ck.Message]:
    """What is there, as soon as anything is; the client's own call waits for as many as
    it was asked for.
    """
    first = consumer.poll(seconds)
    return [] if first is None else [first, *consumer.consume(_MOST, 0)]


class ControlTopic:
    """The topic on a cluster, and what was read of it so far.

    Used by any thread of one process; asks nothing before it is used.

    What was read holds as long as the log has one leader and begins where it did: a
    process that lives for long would else go on behind records that are gone, and pass
    over those that others wrote in their place.
    """

    def __init__(
        self,
        name: str,
        topics: SinkTopics,
        admin: Mapping[str, Value],
        consumer: Mapping[str, Value],
        patience: float,
    ) -> None:
        """`topics` asks for it; `admin`, `consumer`: properties; `patience` in seconds."""
        self.name = name
        self._topics, self._admin, self._consumer, self.patience = (
            topics,
            admin,
            scanning(consumer),
            patience,
        )
        self._lock = threading.Lock()
        self._log: LogSeen | None = None
        self._held = Held()

    def read(self, *, to_end: bool = False) -> Held | None:
        """All that is decided in the topic now; None if there is no topic.

        `to_end`: who asks is behind a fence: there is a topic, and all of it is waited for.

        Raises:
            UnreachableError: the cluster, or an open transaction keeps what is there
                from being seen.
        """
        with self._lock:
            log = self._topics.control(wait=to_end)
            if log is not None and not log.goes_on(self._log):
                self._held = Held(self.name, log.start)
            self._log = log
            if log is None:
                return None
            if self._held.position < log.end:
                self._held = self._held.copied()
                self._read_on(self._held, log.end, to_end=to_end)
            return self._held

    def wait_until_seen(self, seen: Callable[[Held], bool]) -> None:
        """After a commit: Kafka answers before it has marked every partition, and who
        looks next is to see what was committed.

        Not for ever: it is committed, and what holds the topic's end back may be a
        transaction of another run.
        """
        deadline = time.monotonic() + SEEN_SECONDS
        with suppress(UnreachableError, KafkaException):
            while time.monotonic() < deadline:
                held = self.read()
                if held is not None and seen(held):
                    return
                time.sleep(LOOK_SECONDS)

    def _read_on(self, held: Held, end: int, *, to_end: bool) -> None:
        held.whole, deadline = False, time.monotonic() + self.patience
        with CLIENTS.of(self._admin).consumers(self._consumer).one(self.name) as consumer:
            consumer.assign([ck.TopicPartition(self.name, 0, held.position)])
            while held.position < end:
                batch = arrived(consumer, POLL_SECONDS)
                for message in batch:
                    self._take(held, message)
                if held.position < end and not to_end and any(map(_is_end, batch)):
                    return
                if held.position < end and time.monotonic() > deadline:
                    what = (
                        f"The control topic {self.name} can't be read to its end {end}: it is"
                        f" decided up to {held.position}"
                    )
                    do = (
                        "An open transaction holds it back, of a run that died: run its window"
                        " again, or wait until Kafka ends it. One that Kafka has forgotten, since"
                        " its own log of transactions was lost, kafka-transactions.sh abort ends."
                    )
                    raise UnreachableError(what, "commit", do)
        held.whole = True

    def _take(self, held: Held, message: ck.Message) -> None:
        error, offset = message.error(), cast("int", message.offset())
        if error is None:
            parts = next((value for name, value in headers_of(message) if name == "parts"), None)
            held.take(message.key() or b"", message.value(), parts)
            held.position = offset + 1
        elif error.code() == END:
            held.position = max(held.position, offset)
        elif error.code() not in PASSING | GONE:
            raise self._topics.named(self.name, error)
