"""Receipts as immutable files beside the table's data. A page names each by its content; one that no page names means nothing."""

from __future__ import annotations

import msgspec

from windrow.ingest.errors import DamagedError, RefusedError
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.receipt import RECEIPT_VERSION, Committed, Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Unreadable
from windrow.ingest.sinks.iceberg.names import RECEIPTS, digest, receipt_path
from windrow.ingest.sinks.iceberg.pages import PageLine
from windrow.ingest.sinks.iceberg.place import LakePlace

_RESTORE = (
    "windrow verify SPEC --restore-receipts puts the ledger's copy back; if the ledger has none, restore the table's _windrow folder "
    "from a backup. Until then don't write the window again: its rows are in the table."
)


class LakeReceipts:
    """The receipts of one table that this process has read or written. Each is read once: its name says its content."""

    def __init__(self) -> None:
        self._read: dict[str, Receipt] = {}
        self._texts: dict[tuple[Window, int, str], str] = {}  # two attempts may have left a receipt of one generation

    def write(self, place: LakePlace, receipt: Receipt) -> str:
        """Put the file there, whole or not at all; its digest. Before the commit that names it."""
        content = to_json(receipt).encode()
        said = digest(content)
        place.put(receipt_path(receipt.window.key, receipt.generation, said), content)
        return said

    def text(self, receipt: Receipt) -> str:
        """Its text as it lies here: what this version would write, but for receipts that another one wrote."""
        return self._texts.get((receipt.window, receipt.generation, receipt.attempt), to_json(receipt))

    def committed(self, place: LakePlace, key: str, entry: PageLine | None) -> Committed | None:
        """The receipt of a window by what the pages say of it; None if they say nothing.

        Raises:
            DamagedError: it is missing or damaged.
        """
        found = None if entry is None else self.committed_or_damage(place, key, entry)
        if isinstance(found, Unreadable):
            raise DamagedError(found.what, "commit", found.do)
        return found

    def committed_or_damage(self, place: LakePlace, key: str, entry: PageLine) -> Committed | Unreadable:
        """The same, and what is the matter with one that can't be read."""
        if entry.receipt not in self._read:
            content = _content(place, key, entry)
            receipt = None if content is None or digest(content) != entry.receipt else _parsed(content)
            if content is None or receipt is None:  # not kept: the file may be restored
                return _unreadable(key, entry, content)
            self._read[entry.receipt] = receipt
            if to_json(receipt).encode() != content:
                self._texts[receipt.window, receipt.generation, receipt.attempt] = content.decode()
        return Committed(self._read[entry.receipt], entry.snapshot)


def restore(place: LakePlace, window: Window, entry: PageLine | None, text: str, *, dry_run: bool) -> None:
    """See `ports.sink.Audit.restore`. What the page says is the measure.

    Raises:
        RefusedError: the page names another text, or none.
    """
    if entry is None:
        raise RefusedError(f"window {window.key} is not committed", "check", "There is no receipt to restore: run the window.")
    if digest(text.encode()) != entry.receipt:
        what = f"the copy of the receipt of window {window.key} is not the text that its commit named"
        raise RefusedError(what, "check", "Nothing was restored. Restore the table's _windrow folder from a backup.")
    if not dry_run:
        place.mend(receipt_path(window.key, entry.generation, entry.receipt), text.encode())


def _unreadable(key: str, entry: PageLine, content: bytes | None) -> Unreadable:
    what = f"window {key} is committed (generation {entry.generation}), and its receipt in {RECEIPTS}"
    if content is not None and digest(content) == entry.receipt and _version(content) > RECEIPT_VERSION:
        return Unreadable(key, f"{what} was written by a later windrow than this one", "Upgrade windrow; nothing is wrong with the table.")
    return Unreadable(key, f"{what} is {'missing' if content is None else 'damaged'}", _RESTORE)


def _content(place: LakePlace, key: str, entry: PageLine) -> bytes | None:
    try:
        return place.get(receipt_path(key, entry.generation, entry.receipt))
    except FileNotFoundError:
        return None


class _AnyForm(msgspec.Struct):
    """The one field that every receipt will always have, whatever its form; the first one had none."""

    version: int = 1


def _version(content: bytes) -> int:
    try:
        return from_json(content, _AnyForm).version
    except msgspec.DecodeError:
        return 0


def _parsed(content: bytes) -> Receipt | None:
    """None for what isn't a receipt, or is a later windrow's: fields that this one would leave out may change what the others mean."""
    if _version(content) > RECEIPT_VERSION:
        return None
    try:
        return from_json(content, Receipt)
    except msgspec.DecodeError:  # also a ValidationError
        return None
