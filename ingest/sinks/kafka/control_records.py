"""The records of the control topic: owner, published splits and receipts of a Kafka table. Pure.

    ["owner"]                       the table's owner
    ["split", window, number]       the published messages of one split, until its window is
                                    committed
    ["receipt", window, number]     the receipt of a committed window, with the records of its
                                    splits; a long receipt is cut into several chunks

With transactions, a run fences every other run of the same window. Without transactions, two
runs of a window may write receipts at the same time, with mixed chunks. So without
transactions the key of a receipt ends with its attempt. The first receipt that is complete
counts. It is the same for all readers, because they read in the same order.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

import msgspec

from windrow.ingest.errors import DamagedError
from windrow.ingest.model.codec import from_json
from windrow.ingest.model.owner import TableOwner
from windrow.ingest.model.plan import Covered, Plan, covered_ranges
from windrow.ingest.model.receipt import RECEIPT_VERSION, Checksum, Receipt
from windrow.ingest.ports.sink import OWNER, Unreadable
from windrow.ingest.sinks.kit import StoredReceipt

T = TypeVar("T")
Key = tuple[str | int, ...]
Record = tuple[bytes, bytes | None]
"""Key and value of a record. A record without a value deletes the record with the same key."""

FORM = 3
"""Version of the records' format, and of the header `encoder.ORIGIN`."""

CHUNK_BYTES = 512 * 1024
"""Largest value of one record of a receipt, in bytes."""


class OffsetSpan(msgspec.Struct, frozen=True, array_like=True):
    """First and last offset of a split's messages in a target topic-partition.

    Messages of other splits may be between them.

    Attributes:
        topic: the target topic.
        partition: the partition of the target topic.
        first: the first offset.
        last: the last offset.
        topic_id: the id of the target topic; empty if it isn't known. A topic that is made
            again under the same name has another id.
    """

    topic: str
    partition: int
    first: int
    last: int
    topic_id: str = ""


class PublishedSplit(msgspec.Struct, frozen=True):
    """Record of one published split.

    Attributes:
        window: the key of the split's window.
        number: the split's number in the plan.
        digest: the plan's digest.
        topic: the topic that was read.
        partition: the partition that was read.
        start: the first offset that was read.
        stop: the offset after the last one that was read.
        rows: number of the split's messages.
        same: see `stage.StagedMessages`.
        checksum: checksum of the rows, as the attempt staged them.
        attempt: the attempt that published the split.
        places: the offsets of its messages.
        form: version of the format.
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


class _OwnerRecord(msgspec.Struct, frozen=True):
    """Record of the table's owner.

    Attributes:
        owner: the owner.
        form: version of the format.
        start: the log's first offset when the owner was recorded. If the log begins later
            now, records are missing. A restore of the receipts records the owner again, with
            the first offset of that time.
    """

    owner: TableOwner
    form: int = FORM
    start: int = 0


class _ReceiptRecord(msgspec.Struct, frozen=True):
    """Record of a committed window."""

    receipt: msgspec.Raw
    splits: tuple[PublishedSplit, ...]
    form: int = FORM


class _ReceiptHead(msgspec.Struct, frozen=True):
    """The fields that receipts of all versions have."""

    plan: Plan
    version: int


class _FormOnly(msgspec.Struct, frozen=True):
    """The field that records of all versions have."""

    form: int


class CommittedWindow(msgspec.Struct, frozen=True):
    """A committed window.

    Attributes:
        packed: the compressed text of the window's receipt.
        ranges: the offsets that the window covers.
        splits: the records of the window's splits.
    """

    packed: bytes
    ranges: tuple[Covered, ...]
    splits: tuple[PublishedSplit, ...]

    @property
    def text(self) -> str:
        """The receipt's exact text."""
        return zlib.decompress(self.packed).decode()


class ControlState:
    """State of a table, made from the records of its control topic.

    A state that `ControlTopic.read` returned never changes.

    Attributes:
        start: the log's first offset.
        position: the next offset to read.
        version: number of windrow's records that were read.
        is_complete: True if the topic was read to its end, so no undecided record follows.
        windows: the committed windows by key.
        splits: the published splits by number, of each window that isn't committed yet.
        damaged: per window, or `OWNER`, why a record about it can't be read.
    """

    def __init__(self, name: str = "", start: int = 0) -> None:
        self._name, self.start = name, start
        self.position, self.version, self.is_complete = start, 0, True
        self._owner: _OwnerRecord | None = None
        self.windows: dict[str, CommittedWindow] = {}
        self.splits: dict[str, dict[int, PublishedSplit]] = {}
        self.damaged: dict[str, str] = {}
        self._chunks: dict[tuple[str, str], list[bytes]] = {}

    def copy(self) -> ControlState:
        """Returns a copy, to which further records are added."""
        state = copy.copy(self)
        state.windows, state.damaged = dict(self.windows), dict(self.damaged)
        state.splits = {key: dict(splits) for key, splits in self.splits.items()}
        state._chunks = {  # noqa: SLF001
            key: list(chunks) for key, chunks in self._chunks.items()
        }
        return state

    @property
    def is_new(self) -> bool:
        """True if the topic has no owner, and never had one."""
        known_records = self.windows or self.splits or self.damaged
        return self._owner is None and not known_records and self.deleted is None

    @property
    def owner(self) -> TableOwner:
        """The table's owner.

        Raises:
            DamagedError: the record of the owner can't be read, or records were deleted,
                perhaps receipts too.
        """
        if self.deleted is not None:
            raise DamagedError(self.deleted, "setup", DO_DELETED)
        if self._owner is None:
            none = f"the control topic {self._name} has records, but none that names its owner"
            raise DamagedError(self.damaged.get(OWNER, none), "setup", DO_DAMAGED)
        return self._owner.owner

    def committed(self) -> Collection[str]:
        """Returns the keys of all windows with a receipt, even if the receipt can't be read."""
        return self.windows.keys() | self.damaged.keys()

    def receipts(self, keys: Collection[str] | None = None) -> Iterator[StoredReceipt | Unreadable]:
        """Yields the receipts of some windows, or of all, in the order of their keys."""
        for key in sorted(self.committed() if keys is None else keys):
            if key in self.damaged:
                yield Unreadable(key, self.damaged[key], DO_DAMAGED)
            elif key in self.windows:
                yield StoredReceipt(key, self.windows[key].text, None)

    def overlapping(self, ranges: Sequence[Covered]) -> set[str]:
        """Returns the keys of the committed windows that cover any of these offsets."""
        return {
            key
            for key, committed in self.windows.items()
            if any(a.overlaps(b) for a in ranges for b in committed.ranges)
        }

    @property
    def deleted(self) -> str | None:
        """Message about deleted records; None if the log has all of its records.

        The owner's record is among the deleted records. Receipts may be among them too.
        """
        if self.start <= (0 if self._owner is None else self._owner.start):
            return None
        return (
            f"the control topic {self._name} begins at offset {self.start}: the records before it"
            " were deleted, perhaps with receipts of windows"
        )

    @property
    def is_bound(self) -> bool:
        """True if the topic has a readable record of its owner, and no receipt can be missing."""
        return self._owner is not None and OWNER not in self.damaged and self.deleted is None

    def take(self, key: bytes, value: bytes | None, chunks: bytes | None) -> None:
        """Takes the next record; a record that isn't windrow's is ignored.

        Args:
            key: the record's key.
            value: the record's value.
            chunks: the record's header with the number of chunks of the receipt.
        """
        match _key(key):
            case ("owner",) if value is not None:
                self._take_record(OWNER, lambda: self._take_owner(value))
            case ("split", str(window), int(number)):
                self._take_record(window, lambda: self._take_split(window, number, value))
            case ("receipt", str(window), int(number), *rest) if value is not None:
                self._take_record(
                    window,
                    lambda: self._take_chunk(
                        window, str(rest[0]) if rest else "", number, int(chunks or b"1"), value
                    ),
                )

    def _take_record(self, about: str, take: Callable[[], None]) -> None:
        """Takes a record. An unreadable record only damages the window that it is about."""
        self.version += 1
        try:
            take()
        except (msgspec.MsgspecError, ValueError) as error:
            self.damaged[about] = (
                f"a record of {about} in the control topic can't be read: {type(error).__name__}"
            )

    def _take_owner(self, value: bytes) -> None:
        self._owner = _read(value, _OwnerRecord)
        self.damaged.pop(OWNER, None)

    def _take_split(self, window: str, number: int, value: bytes | None) -> None:
        if value is None:
            self.splits.get(window, {}).pop(number, None)
        else:
            self.splits.setdefault(window, {})[number] = _read(value, PublishedSplit)

    def _take_chunk(
        self, window: str, attempt: str, number: int, chunks: int, value: bytes
    ) -> None:
        """Takes a chunk of a receipt; the chunks of one attempt come in their order.

        A window keeps its first complete receipt.
        """
        chunk_key = (window, attempt)
        if number == 0:
            self._chunks[chunk_key] = []
        received = self._chunks.setdefault(chunk_key, [])
        received.append(value)
        if len(received) < chunks:
            return
        record = _read(b"".join(self._chunks.pop(chunk_key)), _ReceiptRecord)
        text = bytes(record.receipt)
        head = from_json(text, _ReceiptHead)
        if head.version == RECEIPT_VERSION:
            # Checks that the receipt can be read. A receipt of another version is refused with
            # its own message when it is used.
            from_json(text, Receipt)
        committed = CommittedWindow(
            zlib.compress(text, 1), covered_ranges(head.plan), record.splits
        )
        self.windows.setdefault(window, committed)
        self.damaged.pop(window, None)


_RESTORE = (
    "windrow verify SPEC --restore-receipts restores the receipts that the ledger has copies of"
)
DO_DAMAGED = (
    "Another program wrote to the control topic, or the topic is damaged; nothing was published."
    f" {_RESTORE}; for others restore the topic from a backup."
)
"""Advice about a control topic with a record that can't be read."""
DO_DELETED = (
    "Either its cleanup.policy isn't compact alone, or somebody deleted records. Set the policy to"
    f" compact. {_RESTORE}."
)
"""Advice about a control topic whose first records were deleted."""


def _read(value: bytes, kind: type[T]) -> T:
    form = msgspec.json.decode(value, type=_FormOnly).form
    if form > FORM:
        raise DamagedError(
            "the control topic holds a record of a later windrow",
            "commit",
            "Update windrow to the version that wrote it.",
        )
    if form < FORM:
        raise DamagedError(
            f"the control topic holds a record of an older windrow (form {form}, now {FORM})",
            "commit",
            "Begin a pipeline with another id, topic, control topic and staging.",
        )
    return msgspec.json.decode(value, type=kind)


def _key(key: bytes) -> Key:
    try:
        key_parts = msgspec.json.decode(key, type=list[str | int])
    except (msgspec.MsgspecError, ValueError):
        return ()
    return tuple(key_parts)


# --------------------------------------------------------------------------------------------------


def owner_record(owner: TableOwner, start: int = 0) -> Record:
    """Makes the record of the table's owner.

    Args:
        owner: the owner.
        start: the log's first offset, once all records before it are restored.
    """
    return b'["owner"]', msgspec.json.encode(_OwnerRecord(owner, start=start))


def split_record(split: PublishedSplit) -> Record:
    """Makes the record of a published split."""
    return _split_key(split.window, split.number), msgspec.json.encode(split)


def receipt_records(
    window: str, text: str, splits: tuple[PublishedSplit, ...], attempt: str | None = None
) -> Iterator[Record]:
    """Yields the records of a window's receipt, in as many chunks as it needs.

    The receipt contains the records of its splits. The splits' own records are deleted.

    Args:
        window: the window's key.
        text: the receipt's text.
        splits: the records of its splits.
        attempt: the receipt's attempt; None if no other attempt can write at the same time.
    """
    attempt_part = () if attempt is None else (attempt,)
    content = msgspec.json.encode(_ReceiptRecord(msgspec.Raw(text.encode()), splits))
    for number, start in enumerate(range(0, len(content), CHUNK_BYTES)):
        yield (
            msgspec.json.encode(["receipt", window, number, *attempt_part]),
            content[start : start + CHUNK_BYTES],
        )
    yield from ((_split_key(window, split.number), None) for split in splits)


def chunk_header(records: Sequence[Record]) -> list[tuple[str, bytes]]:
    """Returns the header of each record of a receipt: the number of its chunks."""
    return [("parts", str(sum(value is not None for _, value in records)).encode())]


def _split_key(window: str, number: int) -> bytes:
    return msgspec.json.encode(["split", window, number])
