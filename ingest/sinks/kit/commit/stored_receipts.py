"""Receipts as a table stores them, each with a digest that proves it.

As files, for tables whose commits have room for small facts only. A commit has the digest of a
receipt. A file in the table's folder has the text, and the digest is in the file's name. A file
that no commit names has no meaning, and a lost file can be restored byte by byte.

As rows of a database, in two tables: the receipts, and the ranges of offsets, which find
overlapping windows. A person may change or delete rows of either table. A window with a row in
one of them was committed.

Both are read in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from windrow.ingest.errors import DamagedError, RefusedError
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import Window, covered_ranges
from windrow.ingest.model.receipt import RECEIPT_VERSION, Committed, Receipt
from windrow.ingest.ports.sink import Unreadable
from windrow.ingest.sinks.kit.commit.table_store import ReceiptState, StoredReceipt
from windrow.ingest.sinks.kit.files.filesystem import Place

RECEIPTS = "_windrow/receipts"
"""The folder. Other clients that remove orphan files skip names that begin with an underscore."""

_DIGITS = 32
_READERS = 8
_DO = (
    "windrow verify SPEC --restore-receipts puts it back from the ledger's copy; if there is none,"
    " restore {} from a backup."
)


class NamedReceipt(msgspec.Struct, frozen=True):
    """A window's receipt as a commit names it: its generation, and the digest of its text."""

    generation: int
    digest: str

    def path(self, key: str) -> str:
        """Returns the path of the file, for the window with this key."""
        return f"{RECEIPTS}/{key.replace(':', '_')}.{self.generation}.{self.digest}.json"


def write(folder: Place, receipt: Receipt) -> NamedReceipt:
    """Writes a receipt's file, before the commit that names it."""
    content = to_json(receipt).encode()
    named = NamedReceipt(receipt.generation, digest(content))
    folder.put(named.path(receipt.window.key), content)
    return named


def read_stored_receipts(
    folder: Place, named: Mapping[str, tuple[NamedReceipt, int | None]]
) -> Iterator[StoredReceipt | Unreadable]:
    """Yields the receipts that commits name, in the order of the windows' keys.

    Args:
        folder: the table's folder.
        named: for each window's key, its receipt and the version of the table that its commit
            made.
    """
    with ThreadPoolExecutor(_READERS) as pool:
        yield from pool.map(lambda key: _read(folder, key, *named[key]), sorted(named))


def _read(
    folder: Place, key: str, named: NamedReceipt, version: int | None
) -> StoredReceipt | Unreadable:
    """Reads one receipt, and compares its digest with that of the commit."""
    unreadable = partial(_unreadable, key, named.generation)
    try:
        content = folder.get(named.path(key))
    except FileNotFoundError:
        return unreadable("missing")
    if digest(content) != named.digest:
        return unreadable("damaged")
    return StoredReceipt(key, content.decode(), version)


def read_receipt_texts(folder: Place) -> Iterator[str]:
    """Yields the texts of all intact files, whether or not a commit names them."""
    for name in sorted(folder.names(RECEIPTS)):
        content = folder.get(f"{RECEIPTS}/{name}")
        if f".{digest(content)}." in name:
            yield content.decode()


def restore(
    folder: Place, window: Window, named: NamedReceipt, text: str, *, dry_run: bool
) -> None:
    """Writes a lost receipt again from its exact text (`TableState.restore`)."""
    if digest(text.encode()) != named.digest:
        raise RefusedError(
            f"the copy of the receipt of window {window.key} is not the text that its commit named",
            "check",
            "Nothing was restored. Restore the table's _windrow folder from a backup.",
        )
    if not dry_run:
        folder.put(named.path(window.key), text.encode())


def _unreadable(key: str, generation: int, state: str) -> Unreadable:
    message = (
        f"window {key} is committed (generation {generation}), and its receipt in {RECEIPTS} is"
        f" {state}"
    )
    advice = (
        "windrow verify SPEC --restore-receipts puts the ledger's copy back; if the ledger has"
        " none, restore the table's _windrow folder from a backup. Until then don't write the"
        " window again: its rows are in the table."
    )
    return Unreadable(key, message, advice)


def digest(content: bytes) -> str:
    """Returns 128 bits of a text's SHA-256."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


# ------------------------------------------------------------------------------------------ as rows


class ReceiptRow(msgspec.Struct, frozen=True):
    """A window's newest receipt and its ranges, as the tables have them.

    If the row of the receipt is missing, `receipt`, `sha256` and `generation` are None.

    Attributes:
        window_key: the window's key.
        receipt: the receipt's text.
        sha256: the digest of the row.
        version: the version of the table that the receipt's commit made.
        ranges: the window's ranges as texts.
        generation: the receipt's generation; 0 in tables whose rows have none.
    """

    window_key: str
    receipt: str | None
    sha256: bytes | None
    version: int | None
    ranges: Sequence[str]
    generation: int | None = 0

    def stored(self, backup: str) -> StoredReceipt | Unreadable:
        """Returns the receipt, unless another program has changed it or the window's ranges.

        Args:
            backup: the name of the tables, for the advice to restore them from a backup.
        """
        key, advice = self.window_key, _DO.format(backup)
        if self.receipt is None or self.generation is None:
            return Unreadable(key, f"window {key} is committed, and its receipt is missing", advice)
        if self.sha256 != _row_digest(key, self.generation, self.ranges, self.receipt):
            return Unreadable(
                key,
                f"the receipt or the offsets of window {key} are not those that were committed",
                advice,
            )
        return StoredReceipt(key, self.receipt, self.version)

    def refuse_other(self, receipt: Receipt, backup: str) -> None:
        """Refuses a copy of a receipt that isn't the committed one.

        It is for a copy that no digest proves. The copy is accepted only if the row of the
        receipt is missing and the copy has the window's ranges.

        Raises:
            RefusedError: the copy isn't accepted.
        """
        if self.receipt is not None or sorted(self.ranges) != sorted(_range_texts(receipt)):
            raise RefusedError(
                f"the copy of the receipt of window {self.window_key} is not what was committed",
                "check",
                f"Nothing was restored. Restore {backup} from a backup.",
            )


def receipt_digest(window_key: str, receipt: Receipt, text: str, generation: int = 0) -> bytes:
    """Returns the digest of a receipt's row: of its text, window, generation and ranges.

    Args:
        window_key: the key of the row's window; the receipt may be another window's.
        receipt: the receipt.
        text: the receipt's text.
        generation: the row's generation; 0 in tables whose rows have none.
    """
    return _row_digest(window_key, generation, _range_texts(receipt), text)


def _row_digest(key: str, generation: int, ranges: Sequence[str], text: str) -> bytes:
    """Computes the digest of a receipt's text, its window, its generation and its ranges."""
    content = "\n".join([key, str(generation), *sorted(ranges), text])
    return hashlib.sha256(content.encode()).digest()


def _range_texts(receipt: Receipt) -> list[str]:
    """Returns the window's ranges as texts: the topic's id, the partition, start and stop."""
    return [f"{r.topic_id} {r.partition} {r.start} {r.stop}" for r in covered_ranges(receipt.plan)]


# ------------------------------------------------------------------------------------------ read


class _AnyVersion(msgspec.Struct):
    """The one field that receipts of every version have."""

    version: int = 1


def read_receipt(stored: StoredReceipt | Unreadable) -> Committed | Unreadable:
    """Parses a stored receipt.

    A receipt of a later version isn't read: its unknown fields may change the meaning of the
    others.
    """
    if isinstance(stored, Unreadable):
        return stored
    try:
        version = from_json(stored.text, _AnyVersion).version
        if version > RECEIPT_VERSION:
            message = f"the receipt of window {stored.key} was written by a later windrow"
            advice = "Upgrade windrow; nothing is wrong with the table."
            return Unreadable(stored.key, message, advice)
        if version < RECEIPT_VERSION:
            message = f"the receipt of window {stored.key} has form {version}, from before 0.1.0"
            advice = (
                "Begin another pipeline and table from the topic: this form isn't read any more."
            )
            return Unreadable(stored.key, message, advice)
        return Committed(from_json(stored.text, Receipt), stored.version)
    except (msgspec.DecodeError, ValueError):
        message = f"the receipt of window {stored.key} is damaged"
        advice = "Put the ledger's copy back: windrow verify SPEC --restore-receipts."
        return Unreadable(stored.key, message, advice)


def require_readable(committed: Committed | Unreadable) -> Committed:
    """Returns a receipt that can be read.

    Raises:
        DamagedError: it is missing or damaged.
    """
    if isinstance(committed, Unreadable):
        raise DamagedError(committed.message, "commit", committed.advice)
    return committed


def committed_by_key(state: ReceiptState, keys: Collection[str]) -> dict[str, Committed]:
    """Returns the newest committed receipts of some windows, by the window's key.

    Raises:
        DamagedError: a receipt is missing or damaged.
    """
    receipts = (
        [require_readable(read_receipt(stored)) for stored in state.receipts(keys)] if keys else []
    )
    return {committed.receipt.window.key: committed for committed in receipts}
