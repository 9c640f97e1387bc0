"""Broken twins of the files sink, each one step from the real one. A suite that can't tell them apart proves nothing.

`meanwhile` is called between the look and the write, where the other run gets its turn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tests.sinks.files.world import FilesBoth
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.receipt import Receipt
from windrow.ingest.sinks.files.entry import BringWindow, encoded, path_of
from windrow.ingest.sinks.files.sink import FilesSink
from windrow.ingest.sinks.files.state import FilesState


class RealSink(FilesBoth):
    """The sink itself; another run gets its turn between its first look and its first put."""

    def __init__(self, uri: str, rows: pa.Schema, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__(uri, rows)
        self.meanwhile = meanwhile

    def _put(self, *args: Any) -> OSError | None:
        turn, self.meanwhile = self.meanwhile, lambda: None
        turn()
        return super()._put(*args)


class NextFreeNumber(RealSink):
    """Takes the next number that is free, instead of the one behind what was looked at."""

    def _put(self, state: Any, change: Any) -> OSError | None:
        put = self._log._puts.put

        def anywhere(path: str, content: bytes) -> None:
            for number in count(int(Path(path).stem)):
                newest = self._log.look()
                assert newest is not None
                with suppress(FileExistsError):
                    put(path_of(number), encoded(newest.last, change))
                    return

        self._log._puts.put = anywhere  # type: ignore[method-assign]
        return super()._put(state, change)


class Overwrites(RealSink):
    """Puts its entry without the condition, as a rename does, or a store that takes no notice of it."""

    def _put(self, state: Any, change: Any) -> OSError | None:
        self._log._puts.put = lambda path, content: (Path(self.uri) / path).write_bytes(content)  # type: ignore[method-assign,assignment]
        return super()._put(state, change)


class TakenMeansDone(RealSink):
    """Believes that a name that is taken was taken by itself."""

    def _put(self, state: Any, change: Any) -> OSError | None:
        why = super()._put(state, change)
        return None if isinstance(why, FileExistsError) else why


class RetriesBlindly(RealSink):
    """Finds the name taken, and puts its files behind what is there now without looking what that is, as an append does that retries."""

    def _put(self, state: Any, change: Any) -> OSError | None:
        turn, self.meanwhile = self.meanwhile, lambda: None
        turn()
        while True:
            newest = self._log.look()
            assert newest is not None
            why = FilesSink._put(self, newest, _behind(newest, state.number, change))
            if not isinstance(why, FileExistsError):
                return why


def _behind(newest: FilesState, number: int, change: BringWindow) -> BringWindow:
    receipt = from_json(bytes(change.receipt), Receipt)
    held = newest.windows.get(receipt.window.key)
    if held is None or held.entry <= number:
        return change
    again = msgspec.structs.replace(receipt, generation=held.generation + 1)
    return BringWindow((*held.files, *change.files), msgspec.Raw(to_json(again).encode()), change.columns)
