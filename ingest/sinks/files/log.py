"""The log of a table of files: numbered entries, each put under a name that is taken once, and checkpoints so that few have to be read.

An entry's number is its place in the one order of all that ever happened to the table. Who commits has read everything up to N - 1, and
puts N: if another one was first, the name is taken. So what was looked at still holds when the commit arrives, for any two windows:

    1 A has read up to 7.   2 B has read up to 7.   3 A puts 8.   4 B puts 8: taken.   5 B reads 8, judges again, and puts 9.

Entries stay for ever, for they have the receipts. A checkpoint is what they come to, and stands for none of them: whoever finds none that
is whole reads from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ingest.errors import DamagedError, UnreachableError
from ingest.model.codec import from_json
from ingest.model.plan import Plan
from ingest.model.receipt import Committed, Receipt
from ingest.sinks.exclusive import exclusive
from ingest.sinks.files.entry import BringWindow, Change, decoded, encoded, fingerprint, first_in_next_folder, folder_of, path_of
from ingest.sinks.files.state import BrokenLogError, FilesState, RangesHeld, after
from ingest.sinks.place import Place

CHECKPOINTS = "_windrow/checkpoints"
EVERY = 64
"""So many entries lie between two checkpoints; in a table of many windows more, so that checkpoints don't outgrow it."""
_SHARE = 16


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
            receipt = from_json(self.receipt_bytes(window.entry), Receipt)
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
        try:
            entry = decoded(self._recent.get(number) or self._got(number)).entry
        except msgspec.DecodeError as error:
            raise self._damaged(number, "it can't be read") from error
        if not isinstance(entry, BringWindow):
            raise self._damaged(number, "it brought no window")
        return bytes(entry.receipt)

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

    def _damaged(self, number: int, why: str) -> DamagedError:
        what = f"entry {number} of the log of {self._uri} ({path_of(number)}) can't be gone by: {why}"
        return DamagedError(what, "commit", "Restore that file from a backup; until then no window is committed to this table.")

    # -------------------------------------------------------------------------------------------------------------------- checkpoints

    def _checkpointed(self) -> FilesState | None:
        """The newest checkpoint that is whole, and of this log."""
        for name in sorted(self._place.names(CHECKPOINTS), reverse=True):
            number, _, digits = name.removesuffix(".json").partition("-")
            try:
                content = self._place.get(f"{CHECKPOINTS}/{name}")
                state = from_json(content, FilesState) if fingerprint(content) == digits else None
            except (FileNotFoundError, msgspec.DecodeError):
                continue
            if state is not None and number.isdecimal() and int(number) == state.number and self._is_last(state):
                return state
        return None

    def _keep(self, state: FilesState) -> None:
        """Write a checkpoint. It only saves reading, so that it fails is nobody's failure."""
        content = msgspec.json.encode(state)
        try:
            self._place.put(f"{CHECKPOINTS}/{state.number:020d}-{fingerprint(content)}.json", content)
        except (OSError, UnreachableError):
            return
