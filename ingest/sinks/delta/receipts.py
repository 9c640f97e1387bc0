"""Receipts as immutable files beside the table's data.

A commit names its receipt by content: 63 bits of the file's SHA-256 are the version of an application transaction, and application
transactions survive checkpoints and the clean-up of the log, which commitInfo doesn't. A receipt file that no commit names means
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ingest.errors import DamagedError, RefusedError
from ingest.model.codec import from_json, to_json
from ingest.model.plan import covered
from ingest.model.receipt import RECEIPT_VERSION, Committed, Receipt
from ingest.model.window import Window
from ingest.ports.sink import Unreadable
from ingest.sinks.delta.names import (
    RECEIPTS,
    ReceiptName,
    fingerprint,
    parse_receipt_name,
    receipt_app,
    receipt_name,
    safe,
    version_app,
    window_app,
)
from ingest.sinks.delta.place import Place

LATER = ("was written by a later windrow than this one", "Upgrade windrow; nothing is wrong with the table.")

VersionOf = Callable[[str], int | None]
_RESTORE = (
    "windrow verify SPEC --restore-receipts puts the ledger's copy back; if the ledger has none, restore the table's _windrow directory "
    "from a backup. Until then don't write the window again: its rows are in the table."
)


@dataclass(frozen=True)
class TableSnapshot:
    """What one loaded state of a table says of its receipts.

    `version`: its version of an application id. `pipeline`: whose windows it holds. `names`: the receipt files, listed after it was
    loaded; for a question about one window that window's own suffice, and about overlaps those that weren't asked about before.
    """

    version: VersionOf
    pipeline: str
    names: Sequence[ReceiptName]


_Range = tuple[int, int, ReceiptName, Receipt]
"""Start, stop (exclusive), and whose: plain numbers, for thousands of them are compared per commit."""


class ReceiptFiles:
    """The receipt files of one table. Each is read once per process: a name says its content, so it never changes."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._read: dict[str, Receipt] = {}
        self._texts: dict[tuple[Window, int, str], str] = {}  # two attempts may have left a receipt of one generation
        self._ranges: dict[tuple[str, int], list[_Range]] = defaultdict(list)
        self._indexed: set[str] = set()
        self._listed: dict[str, dict[str, ReceiptName]] = defaultdict(dict)  # by window
        self._unread: dict[str, ReceiptName] = {}  # listed, and not indexed
        self._prints: set[int] = set()  # of the files that are listed

    def write(self, receipt: Receipt) -> int:
        """Put the file there, whole or not at all; its fingerprint. Before the commit that names it."""
        content = to_json(receipt).encode()
        name = receipt_name(receipt.window, receipt.generation, content)
        self._place.put(f"{RECEIPTS}/{name}", content)
        self._list([name])
        return fingerprint(content)

    def text(self, receipt: Receipt) -> str:
        """Its text as it lies here: what this version would write, but for receipts that another one wrote."""
        return self._texts.get((receipt.window, receipt.generation, receipt.attempt), to_json(receipt))

    def restore(self, version: VersionOf, window: Window, text: str, *, dry_run: bool) -> None:
        """See `ports.sink.Audit.restore`. What the snapshot names is the measure: 63 bits of the text's SHA-256.

        Raises:
            RefusedError: the snapshot names another text, or none.
        """
        generation, content = version(window_app(window.key, window.pipeline)), text.encode()
        if generation is None:
            raise RefusedError(f"window {window.key} is not committed", "check", "There is no receipt to restore: run the window.")
        if version(receipt_app(window.key, window.pipeline)) != fingerprint(content):
            what = f"the copy of the receipt of window {window.key} is not the text that its commit named"
            raise RefusedError(what, "check", "Nothing was restored. Restore the table's _windrow directory from a backup.")
        path = f"{RECEIPTS}/{receipt_name(window, generation - 1, content)}"
        if not dry_run:
            self._place.mend(path, content)

    def names(self) -> list[ReceiptName]:
        """All receipt files, of commits and of attempts that never came to one."""
        return [n for n in map(parse_receipt_name, sorted(self._place.names(RECEIPTS))) if n is not None]

    def list_named(self, named: Mapping[str, int] | None) -> None:
        """After a look: list the files again, if it names one that isn't listed, or can't say what it names.

        Args:
            named: the fingerprint of each window's receipt that has come since the look before; None if that isn't known.
        """
        if named is None or not self._prints or not self._prints.issuperset(named.values()):
            self._list(sorted(self._place.names(RECEIPTS)))

    def _list(self, names: Iterable[str]) -> None:
        for name in names:
            parsed = None if name in self._unread or name in self._indexed else parse_receipt_name(name)
            if parsed is not None:
                self._listed[parsed.key][name] = self._unread[name] = parsed
                self._prints.add(parsed.fingerprint)

    def names_of(self, key: str) -> list[ReceiptName]:
        """The listed files of a window."""
        return list(self._listed[key].values()) if key in self._listed else []

    def unread(self) -> list[ReceiptName]:
        """The listed files whose ranges aren't known yet."""
        return list(self._unread.values())

    def by_window(self) -> dict[str, list[ReceiptName]]:
        """The same by window key: for who asks of all windows, each with its own names."""
        grouped: dict[str, list[ReceiptName]] = defaultdict(list)
        for name in self.names():
            grouped[name.key].append(name)
        return dict(grouped)

    def committed_receipt(self, snapshot: TableSnapshot, key: str) -> Committed | None:
        """The receipt that a snapshot of the table names for the window with this key; None if it isn't committed.

        Raises:
            DamagedError: it is missing or damaged: nobody may write this window again before it is back.
        """
        receipt = self.receipt_or_damage(snapshot, key)
        if isinstance(receipt, Unreadable):
            raise DamagedError(receipt.what, "commit", receipt.do)
        return receipt

    def receipt_or_damage(self, snapshot: TableSnapshot, key: str) -> Committed | Unreadable | None:
        """The same for who looks for damage."""
        pipeline, version = snapshot.pipeline, snapshot.version
        generation = version(window_app(key, pipeline))
        if generation is None:
            return None
        named = version(receipt_app(key, pipeline))
        mine = [n for n in snapshot.names if n.key == key and n.pipeline == safe(pipeline) and n.fingerprint == named]
        receipt = next((r for r in map(self._receipt, mine) if r is not None), None)
        if receipt is None or receipt.generation + 1 != generation:
            what = f"window {key} is committed (generation {generation - 1}), and its receipt in {RECEIPTS}"
            if any(map(self._later, mine)):
                return Unreadable(key, f"{what} {LATER[0]}", LATER[1])
            return Unreadable(key, f"{what} is {'damaged' if mine else 'missing'}", _RESTORE)
        return Committed(receipt, version(version_app(key, pipeline)))

    def overlapping(self, snapshot: TableSnapshot, receipt: Receipt, named: Mapping[str, int] | None = None) -> list[Receipt]:
        """The committed receipts of other windows that share an offset with this one.

        Most files share none; only for those that do is the table asked whether they count.

        Args:
            snapshot: of the table, with all receipt files.
            receipt: what is to be committed.
            named: the snapshot's fingerprint of each window's receipt, to notice those whose file isn't there at all; of those that have
                come since the commit before, that suffices.

        Raises:
            DamagedError: a receipt that counts can't be read.
        """
        self._index(snapshot.names)
        self._refuse_damaged(snapshot, receipt)
        self._refuse_missing(receipt, named or {})
        hits = {
            name.name: (name, other)
            for mine in covered(receipt.plan)
            for start, stop, name, other in self._ranges.get((mine.topic_id, mine.partition), ())
            if start < mine.stop and mine.start < stop and name.key != receipt.window.key
        }
        return [
            other
            for _, (name, other) in sorted(hits.items())
            if snapshot.version(receipt_app(other.window.key, other.window.pipeline)) == name.fingerprint
        ]

    def _refuse_damaged(self, snapshot: TableSnapshot, receipt: Receipt) -> None:
        """A receipt that counts and can't be read might hold any range: nothing can be committed beside it."""
        for name in snapshot.names:
            if name.name in self._indexed or name.key == receipt.window.key:
                continue
            if snapshot.version(receipt_app(name.key, receipt.window.pipeline)) == name.fingerprint:
                if self._later(name):
                    raise DamagedError(f"the receipt of the committed window {name.key} {LATER[0]}", "commit", LATER[1])
                raise _unknown_ranges(name.key, "damaged")

    def _refuse_missing(self, receipt: Receipt, named: Mapping[str, int]) -> None:
        """The same for one whose file is gone, and with it its name."""
        missing = next((key for key, said in sorted(named.items()) if key != receipt.window.key and said not in self._prints), None)
        if missing is not None:
            raise _unknown_ranges(missing, "missing")

    def _index(self, names: Sequence[ReceiptName]) -> None:
        """Each file's ranges by topic-partition, once: a commit asks for its own only, not for every other of every window."""
        for name in names:
            receipt = None if name.name in self._indexed else self._receipt(name)
            if receipt is None:
                continue
            self._indexed.add(name.name)
            self._unread.pop(name.name, None)
            self._prints.add(name.fingerprint)
            for theirs in covered(receipt.plan):
                self._ranges[theirs.topic_id, theirs.partition].append((theirs.start, theirs.stop, name, receipt))

    def _receipt(self, name: ReceiptName) -> Receipt | None:
        """The content; None if it is not what the name says: damaged, or left behind by a crash in the middle of writing."""
        if name.name not in self._read:
            content = self._content(name)
            receipt = None if content is None else _parsed(content)
            if content is None or receipt is None:  # not kept: the file may be restored
                return None
            self._read[name.name] = receipt
            if to_json(receipt).encode() != content:
                self._texts[receipt.window, receipt.generation, receipt.attempt] = content.decode()
        return self._read[name.name]

    def _content(self, name: ReceiptName) -> bytes | None:
        """What a file holds, if it is there and what its name says."""
        try:
            content = self._place.get(f"{RECEIPTS}/{name.name}")
        except FileNotFoundError:
            return None
        return content if fingerprint(content) == name.fingerprint else None

    def _later(self, name: ReceiptName) -> bool:
        """Whether a file is whole, and of a form that this windrow doesn't know yet."""
        content = self._content(name)
        return content is not None and _version(content) > RECEIPT_VERSION


class _Form(msgspec.Struct):
    """The one field that every receipt will always have, whatever its form; the first one had none."""

    version: int = 1


def _version(content: bytes) -> int:
    try:
        return from_json(content, _Form).version
    except msgspec.DecodeError:
        return 0


def _unknown_ranges(key: str, state: str) -> DamagedError:
    what = f"the receipt of the committed window {key} is {state}: without it nobody can tell which offsets the table holds"
    return DamagedError(what, "commit", _RESTORE)


def _parsed(content: bytes) -> Receipt | None:
    """None for what isn't a receipt, or is a later windrow's: fields that this one would leave out may change what the others mean."""
    if _version(content) > RECEIPT_VERSION:
        return None
    try:
        return from_json(content, Receipt)
    except msgspec.DecodeError:  # also a ValidationError
        return None
