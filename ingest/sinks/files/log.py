"""The log of a table of files: numbered entries, each put under a name that is taken once, and checkpoints so that few have to be read.

An entry's number is its place in the one order of all that ever happened to the table. Who commits has read everything up to N - 1, and
puts N: if another one was first, the name is taken. So what was looked at still holds when the commit arrives, for any two windows:

    1 A has read up to 7.   2 B has read up to 7.   3 A puts 8.   4 B puts 8: taken.   5 B reads 8, judges again, and puts 9.

Entries stay for ever, for they have the receipts. A checkpoint is what they come to, and stands for none of them: whoever finds none that
is whole reads from the beginning. So whoever writes one may remove those before the last two, whoever reads them:

    1 A lists checkpoints 64 and 128.   2 B writes 192 and 256, and removes 64 and 128.   3 A finds 128 gone, and lists anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windrow.ingest.errors import DamagedError, RefusedError, UnreachableError
from windrow.ingest.model.codec import from_json
from windrow.ingest.model.plan import Plan
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.sinks.exclusive import exclusive
from windrow.ingest.sinks.files.entry import (
    BringWindow,
    Change,
    decoded,
    encoded,
    fingerprint,
    first_in_next_folder,
    folder_of,
    path_of,
    rebuilt,
)
from windrow.ingest.sinks.files.state import BrokenLogError, FilesState, RangesHeld, WindowFiles, after
from windrow.ingest.sinks.place import Place

CHECKPOINTS = "_windrow/checkpoints"
EVERY = 64
"""So many entries lie between two checkpoints; in a table of many windows more, so that checkpoints don't outgrow it."""
_SHARE = 16
_LISTINGS = 3
"""A reader whose checkpoints were removed lists them so often; after that it reads the entries."""

_BACKUP = "Restore that file from a backup; until then no window is committed to this table."
_RESTORE = "windrow verify SPEC --restore-receipts puts it back by the ledger's copy; if the ledger has none, restore it from a backup."


class FilesLog:
    """One table's log, for one thread. What a look has seen, the next one doesn't read again.

    Args:
        uri: the table's place.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._place = Place(uri)
        self._puts = exclusive(uri, self._place)
        self._kept: FilesState | None = None
        self._receipts: dict[int, Committed] = {}
        self._numbers: dict[tuple[str, int, str], int] = {}
        self._recent: dict[int, bytes] = {}
        self._ranges = RangesHeld({})

    def look(self) -> FilesState | None:
        """The table as it is now; None if it isn't there.

        Raises:
            DamagedError: an entry is gone or damaged.
            UnreachableError: that can't be told.
        """
        kept, self._kept = self._kept, None
        self._kept = self._followed(kept) if kept is not None and self._is_last(kept) else self._loaded()
        return self._kept

    def put(self, state: FilesState | None, change: Change) -> None:
        """Put the entry behind exactly this state; raises as `exclusive.Exclusive.put`."""
        number = 0 if state is None else state.number + 1
        content = encoded("" if state is None else state.last, change)
        self._puts.put(path_of(number), content)
        self._note(number, content)
        if state is not None and number % max(EVERY, len(state.windows) // _SHARE) == 0:
            self._keep(after(state, content))

    def refuse_overwriting(self, state: FilesState) -> None:
        """Whether a name can really be taken only once.

        Raises:
            SpecError: it can't, and who comes second would overwrite who came first.
            UnreachableError: that can't be told.
        """
        self._puts.prove(path_of(state.number), self._got(state.number))

    def sharing(self, plan: Plan) -> set[str]:
        """The windows, other than its own, that hold an offset of a plan, as of the newest look."""
        return self._ranges.sharing(plan)

    def committed(self, state: FilesState, key: str | None) -> Committed | None:
        """The receipt of a window's newest generation, read from its entry."""
        window = state.windows.get(key) if key is not None else None
        if window is None:
            return None
        if window.entry not in self._receipts:
            content = self.receipt_bytes(window.entry)
            try:
                receipt = from_json(content, Receipt)
            except msgspec.DecodeError as error:
                raise self._damaged(window.entry, "its receipt can't be read", _RESTORE) from error
            self._receipts[window.entry] = Committed(receipt, window.entry)
            self._numbers[receipt.window.key, receipt.generation, receipt.attempt] = window.entry
        return self._receipts[window.entry]

    def every(self, state: FilesState) -> Iterator[Committed]:
        """All windows' receipts, in the order of windows."""
        found = (self.committed(state, key) for key in state.windows)
        return iter(sorted((one for one in found if one is not None), key=lambda one: one.receipt.window.start))

    def number_of(self, receipt: Receipt) -> int | None:
        """The entry that has a receipt, if this one was read."""
        return self._numbers.get((receipt.window.key, receipt.generation, receipt.attempt))

    def receipt_bytes(self, number: int) -> bytes:
        """A receipt as its entry has it.

        Raises:
            DamagedError: the entry is gone or damaged, or has none.
        """
        content = self._recent.get(number) or self._entry(number)
        if content is None:
            raise self._damaged(number, "it is gone", _RESTORE)
        try:
            entry = decoded(content).entry
        except msgspec.DecodeError as error:
            raise self._damaged(number, "it can't be read", _RESTORE) from error
        if not isinstance(entry, BringWindow):
            raise self._damaged(number, "it brought no window", _RESTORE)
        return bytes(entry.receipt)

    def restore(self, state: FilesState, key: str, text: str, *, dry_run: bool) -> None:
        """Put the entry back that brought a window, if it is gone or damaged, byte by byte. One that is there and good stays.

        A checkpoint tells its files, and the caller its receipt; the entry behind it has its fingerprint, and so tells whether that is all.

        Raises:
            RefusedError: it had another receipt.
            DamagedError: an entry beside it is gone or damaged, too.
        """
        held = state.windows[key]
        if self._has(held.entry, text):
            return
        content = None if held.entry == state.number else self._rebuilt(state, held, text)  # the newest was good a moment ago
        if content is None:
            what = f"the copy of the receipt of window {key} is not the text that its commit named"
            raise RefusedError(what, "check", f"Nothing was restored. Restore {path_of(held.entry)} from a backup.")
        if not dry_run:
            self._place.mend(path_of(held.entry), content)

    def _has(self, number: int, text: str) -> bool:
        try:
            return self.receipt_bytes(number) == text.encode()
        except DamagedError:
            return False

    def _rebuilt(self, state: FilesState, held: WindowFiles, text: str) -> bytes | None:
        before, behind = self._got(held.entry - 1), self._got(held.entry + 1)
        try:
            wanted = decoded(behind).after
        except msgspec.DecodeError as error:
            raise self._damaged(held.entry + 1, "it can't be read") from error
        return rebuilt(fingerprint(before), BringWindow(held.files, msgspec.Raw(text.encode())), state.columns, wanted)

    # ------------------------------------------------------------------------------------------------------------------------ reading

    def _is_last(self, state: FilesState) -> bool:
        """Whether the log is the one that was looked at: the table may have been removed, and made anew."""
        content = self._entry(state.number)
        return content is not None and fingerprint(content) == state.last

    def _followed(self, state: FilesState) -> FilesState:
        """A state with the entries that have come since."""
        while (content := self._entry(state.number + 1)) is not None:
            state = self._after(state, state.number + 1, content)
        return state

    def _loaded(self) -> FilesState | None:
        self._receipts, self._recent = {}, {}  # it may be another log
        state = self._checkpointed()
        self._ranges = RangesHeld({} if state is None else state.windows)
        newest = self._newest(0 if state is None else state.number)
        if newest is None:
            return None
        for number in range(0 if state is None else state.number + 1, newest + 1):
            state = self._after(state, number, self._got(number))
        return None if state is None else self._followed(state)

    def _note(self, number: int, content: bytes) -> None:
        """The next commits ask for the newest entries' receipts."""
        self._recent[number] = content
        self._recent.pop(number - EVERY, None)

    def _after(self, state: FilesState | None, number: int, content: bytes) -> FilesState:
        self._note(number, content)
        try:
            new = after(state, content)
        except BrokenLogError as error:
            raise self._damaged(number, str(error)) from error
        if new.window is not None:
            self._ranges.add(new.window, new.windows[new.window])
        return new

    def _newest(self, number: int) -> int | None:
        """The newest entry's number, listed from the folder on in which a number lies: so one that is missing in between is noticed."""
        newest = None
        while names := [name for name in self._place.names(folder_of(number)) if name.endswith(".json")]:
            newest = int(max(names).removesuffix(".json"))
            number = first_in_next_folder(number)
        return newest

    def _entry(self, number: int) -> bytes | None:
        try:
            return self._place.get(path_of(number))
        except FileNotFoundError:
            return None

    def _got(self, number: int) -> bytes:
        content = self._entry(number)
        if content is None:
            raise self._damaged(number, "it is gone")
        return content

    def _damaged(self, number: int, why: str, do: str = _BACKUP) -> DamagedError:
        return DamagedError(f"entry {number} of the log of {self._uri} ({path_of(number)}) can't be gone by: {why}", "commit", do)

    # -------------------------------------------------------------------------------------------------------------------- checkpoints

    def _checkpointed(self) -> FilesState | None:
        """The newest checkpoint that is whole, and of this log."""
        for _ in range(_LISTINGS):
            gone = False
            for name in sorted(self._place.names(CHECKPOINTS), reverse=True):
                try:
                    state = self._checkpoint(name)
                except FileNotFoundError:  # there are newer ones since it was listed
                    gone = True
                    break
                if state is not None:
                    return state
            if not gone:
                break
        return None

    def _checkpoint(self, name: str) -> FilesState | None:
        """One that is whole, and of this log; raises FileNotFoundError where it is gone."""
        number, _, digits = name.removesuffix(".json").partition("-")
        content = self._place.get(f"{CHECKPOINTS}/{name}")
        try:
            state = from_json(content, FilesState) if fingerprint(content) == digits else None
        except msgspec.DecodeError:
            return None
        return state if state is not None and number == f"{state.number:020d}" and self._is_last(state) else None

    def _keep(self, state: FilesState) -> None:
        """Write a checkpoint, and remove those before the one before it. They only save reading, so that it fails is nobody's failure.

        Later ones than this stay: they are another process's, or of a log that was there before this one.
        """
        content = msgspec.json.encode(state)
        name = f"{state.number:020d}-{fingerprint(content)}.json"
        try:
            self._place.put(f"{CHECKPOINTS}/{name}", content)
            for old in sorted(other for other in self._place.names(CHECKPOINTS) if other < name)[:-1]:
                self._place.remove(f"{CHECKPOINTS}/{old}")
        except (OSError, UnreachableError):
            return
