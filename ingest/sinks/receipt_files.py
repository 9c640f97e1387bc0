"""Receipts as files below a table, each named by its content; a commit names the one that counts.

For tables whose commits have room for small facts only: the commit has the digest of a receipt, a
file has its text. A file that no commit names means nothing, and a lost one can be put back byte by
byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from windrow.ingest.errors import RefusedError
from windrow.ingest.model.codec import to_json
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Unreadable
from windrow.ingest.sinks.place import Place
from windrow.ingest.sinks.table_store import StoredReceipt

RECEIPTS = "_windrow/receipts"
"""The folder. Other clients that remove orphan files skip names with an underscore first."""

_DIGITS = 32
_READERS = 8


class NamedReceipt(msgspec.Struct, frozen=True):
    """A window's receipt as a commit names it: its generation, and the digest of its text."""

    generation: int
    digest: str

    def path(self, key: str) -> str:
        """The path of the file, for the window with this key."""
        return f"{RECEIPTS}/{key.replace(':', '_')}.{self.generation}.{self.digest}.json"


def write(folder: Place, receipt: Receipt) -> NamedReceipt:
    """Puts a receipt's file, before the commit that names it."""
    content = to_json(receipt).encode()
    named = NamedReceipt(receipt.generation, digest(content))
    folder.put(named.path(receipt.window.key), content)
    return named


def read(
    folder: Place, named: Mapping[str, tuple[NamedReceipt, int | None]]
) -> Iterator[StoredReceipt | Unreadable]:
    """The receipts that commits name, in the order of the windows' keys.

    Args:
        folder: the table's.
        named: by the window's key its receipt, and the table's version that brought it.
    """
    if len(named) < _READERS:
        yield from (_read(folder, key, *named[key]) for key in sorted(named))
        return
    with ThreadPoolExecutor(_READERS) as pool:
        yield from pool.map(lambda key: _read(folder, key, *named[key]), sorted(named))


def _read(
    folder: Place, key: str, named: NamedReceipt, version: int | None
) -> StoredReceipt | Unreadable:
    unreadable = partial(_unreadable, key, named.generation)
    try:
        content = folder.get(named.path(key))
    except FileNotFoundError:
        return unreadable("missing")
    if digest(content) != named.digest:
        return unreadable("damaged")
    return StoredReceipt(key, content.decode(), version)


def every(folder: Place) -> Iterator[str]:
    """The texts of all whole files, whether or not a commit names them."""
    for name in sorted(folder.names(RECEIPTS)):
        content = folder.get(f"{RECEIPTS}/{name}")
        if f".{digest(content)}." in name:
            yield content.decode()


def restore(
    folder: Place, window: Window, named: NamedReceipt, text: str, *, dry_run: bool
) -> None:
    """Puts a lost receipt back from its exact text (`sinks.table_store.TableState.restore`)."""
    if digest(text.encode()) != named.digest:
        what = (
            f"the copy of the receipt of window {window.key} is not the text that its commit named"
        )
        do = "Nothing was restored. Restore the table's _windrow folder from a backup."
        raise RefusedError(what, "check", do)
    if not dry_run:
        folder.put(named.path(window.key), text.encode())


def _unreadable(key: str, generation: int, state: str) -> Unreadable:
    what = (
        f"window {key} is committed (generation {generation}), and its receipt in {RECEIPTS} is"
        f" {state}"
    )
    do = (
        "windrow verify SPEC --restore-receipts puts the ledger's copy back; if the ledger has"
        " none, restore the table's _windrow folder from a backup. Until then don't write the"
        " window again: its rows are in the table."
    )
    return Unreadable(key, what, do)


def digest(content: bytes) -> str:
    """128 bits of a text's SHA-256."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
