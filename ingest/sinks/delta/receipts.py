"""Receipts as immutable files beside the table's data.

A commit names its receipt by content: 63 bits of the file's SHA-256 are the version of an application transaction, and application
transactions survive checkpoints and the clean-up of the log, which commitInfo doesn't. A receipt file that no commit names means
nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from windrow.ingest.errors import DamagedError, RefusedError, UnreachableError
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import covered
from windrow.ingest.model.receipt import RECEIPT_VERSION, Committed, Receipt
from windrow.ingest.model.window import Window
from windrow.ingest.ports.sink import Unreadable
from windrow.ingest.sinks.delta.names import (
    RANGES,
    RANGES_APP,
    RECEIPTS,
    ReceiptName,
    fingerprint,
    fingerprint_in,
    name_prefix,
    parse_receipt_name,
    ranges_name,
    receipt_app,
    receipt_name,
    safe,
    version_app,
    window_app,
)
from windrow.ingest.sinks.place import Place
from windrow.ingest.sinks.ranges import Ranges, read, written

LATER = ("was written by a later windrow than this one", "Upgrade windrow; nothing is wrong with the table.")

VersionOf = Callable[[str], int | None]
_RESTORE = (
    "windrow verify SPEC --restore-receipts puts the ledger's copy back; if the ledger has none, restore the table's _windrow directory "
    "from a backup. Until then don't write the window again: its rows are in the table."
)


@dataclass(frozen=True)
class TableSnapshot:
    """What one loaded state of a table says of its receipts.

    `version`: its version of an application id. `pipeline`: whose windows it holds. `names`: the receipt files of the windows that are
    asked about, listed after it was loaded.
    """

    version: VersionOf
    pipeline: str
    names: Sequence[ReceiptName] = ()


_EACH = 32
"""So many receipts, or a hundredth of what they stand for, may be in no file of ranges: all that a first commit has to read."""


class ReceiptFiles:
    """The receipt files of one table. Each is read once per process: a name says its content, so it never changes."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._read: dict[str, Receipt] = {}
        self._texts: dict[tuple[Window, int, str], str] = {}  # two attempts may have left a receipt of one generation
        self._listed: list[str] = []  # names of files, sorted
        self._prints: set[int] = set()  # in these names
        self._held = Ranges()  # at least all offsets of the receipts with these fingerprints:
        self._taken: set[int] = set()
        self._kept: dict[int, int] = {}  # files of ranges that are among them, by fingerprint: how many receipts each stands for

    def write(self, receipt: Receipt) -> int:
        """Put the file there, whole or not at all; its fingerprint. Before the commit that names it."""
        content = to_json(receipt).encode()
        name = receipt_name(receipt.window, receipt.generation, content)
        self._place.put(f"{RECEIPTS}/{name}", content)
        if fingerprint(content) not in self._prints:
            insort(self._listed, name)
        self._prints.add(fingerprint(content))
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
            self._listed = sorted(self._place.names(RECEIPTS))
            self._prints = {said for said in map(fingerprint_in, self._listed) if said is not None}

    def names_of(self, key: str) -> list[ReceiptName]:
        """The listed files of a window."""
        begin, found = name_prefix(key), list[str]()
        for at in range(bisect_left(self._listed, begin), len(self._listed)):
            if not self._listed[at].startswith(begin):
                break
            found.append(self._listed[at])
        return [name for name in map(parse_receipt_name, found) if name is not None and name.key == key]

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

    def overlapping(
        self, snapshot: TableSnapshot, receipt: Receipt, named: Mapping[str, int] | None = None, own: Receipt | None = None
    ) -> list[Receipt]:
        """The committed receipts of other windows that share an offset with this one.

        Nearly always there are none, which the ranges of all together tell. Where they tell otherwise, the receipts themselves do.

        Args:
            snapshot: of the table.
            receipt: what is to be committed.
            named: the snapshot's fingerprint of each window's receipt; of those that have come since the commit before, that suffices.
                None if they aren't known: then the files that are listed are read, whether they count or not.
            own: what is committed of the window. What that covers was held against all others when it was committed.

        Raises:
            DamagedError: a receipt that counts can't be read, and no file of ranges stands for it; or its file isn't there at all.
        """
        if named is None:
            self.list_named(None)
            self._take([name for name in self._listed if fingerprint_in(name) not in self._taken], snapshot, receipt.window.key)
        else:
            self._refuse_missing(receipt, named)
            self._take_kept(snapshot.version(RANGES_APP))
            wanted = [(key, said) for key, said in named.items() if said not in self._taken]
            self._take([n.name for key, said in wanted for n in self.names_of(key) if n.fingerprint == said], snapshot, receipt.window.key)
        mine = covered(receipt.plan)
        if (own is not None and set(mine) <= set(covered(own.plan))) or not self._held.meets(mine):
            return []
        return self._sharing(snapshot, receipt)

    def keep_ranges(self, snapshot: TableSnapshot) -> int | None:
        """Where too many receipts are in no file of ranges: write one, for the commit at hand to name; its fingerprint.

        After `overlapping`, which has told all receipts that the snapshot names.
        """
        stood_for = self._kept.get(snapshot.version(RANGES_APP) or 0, 0)
        if len(self._taken) - stood_for < max(_EACH, stood_for // 100):
            return None
        content = written(self._held, self._taken)
        said = fingerprint(content)
        self._place.put(f"{RANGES}/{ranges_name(said)}", content)
        self._kept[said] = len(self._taken)
        return said

    def _take_kept(self, said: int | None) -> None:
        """The newest file of ranges that a commit names, once. One that can't be had only leaves more to be read."""
        if said is None or said in self._kept:
            return
        try:
            content = self._place.get(f"{RANGES}/{ranges_name(said)}")
        except (FileNotFoundError, UnreachableError):
            content = b""
        receipts, ranges = (read(content) if fingerprint(content) == said else None) or ((), ())
        self._held.add(ranges)
        self._taken.update(receipts)
        self._kept[said] = len(receipts)

    def _take(self, names: Iterable[str], snapshot: TableSnapshot, own_key: str) -> None:
        """Know the ranges of these. One that counts and can't be read might hold any: nothing can be committed beside it."""
        for name in (parsed for parsed in map(parse_receipt_name, names) if parsed is not None):
            receipt = self._receipt(name)
            if receipt is not None:
                self._held.add(covered(receipt.plan))
                self._taken.add(name.fingerprint)
            elif name.key != own_key:
                self._refuse_damaged(snapshot, name)

    def _sharing(self, snapshot: TableSnapshot, receipt: Receipt) -> list[Receipt]:
        """What `overlapping` returns, by every receipt itself; of those that share an offset the table is asked whether they count."""
        mine, found = covered(receipt.plan), []
        for name in map(parse_receipt_name, self._listed):
            if name is None or name.key == receipt.window.key:
                continue
            other = self._receipt(name)
            if other is None:
                self._refuse_damaged(snapshot, name)
                continue
            shares = any(one.overlaps(theirs) for theirs in covered(other.plan) for one in mine)
            if shares and snapshot.version(receipt_app(other.window.key, other.window.pipeline)) == name.fingerprint:
                found.append(other)
        return found

    def _refuse_damaged(self, snapshot: TableSnapshot, name: ReceiptName) -> None:
        if snapshot.version(receipt_app(name.key, snapshot.pipeline)) == name.fingerprint:
            if self._later(name):
                raise DamagedError(f"the receipt of the committed window {name.key} {LATER[0]}", "commit", LATER[1])
            raise _unknown_ranges(name.key, "damaged")

    def _refuse_missing(self, receipt: Receipt, named: Mapping[str, int]) -> None:
        """The same for one whose file is gone, and with it its name."""
        self.list_named(named)
        missing = {key for key, said in named.items() if said not in self._prints} - {receipt.window.key}
        if missing:
            raise _unknown_ranges(min(missing), "missing")

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
