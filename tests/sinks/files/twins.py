"""Broken twins of a table of files, each one step from the real one.

A suite that can't tell them apart proves nothing.

`meanwhile` is called between the look and the put, where the other run gets its turn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tests.sinks.files.world import FilesBoth
from tests.sinks.hooks import on_put
from windrow.ingest.sinks.files.manifest import Manifest, encode, fingerprint, path_of
from windrow.ingest.sinks.files.store import FilesStore
from windrow.ingest.sinks.table_store import Answer, Conflict, TableChange, Written


class RealSink(FilesBoth):
    """The table itself; another run gets its turn between its first look and its first put."""

    def __init__(
        self, uri: str, rows: pa.Schema, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(uri, rows)
        self.meanwhile = meanwhile
        on_put(self, self._late)

    def _late(self, state: Any, change: TableChange) -> Answer:
        turn, self.meanwhile = self.meanwhile, lambda: None
        turn()
        return self.put(state, change)

    def put(self, state: Any, change: TableChange) -> Answer:
        return self.once(state, change)

    def once(self, state: Any, change: TableChange) -> Answer:
        return state.put(change)  # type: ignore[no-any-return]


class NextFreeNumber(RealSink):
    """Takes the next number that is free, instead of the one behind what was looked at."""

    def put(self, state: Any, change: TableChange) -> Answer:
        put = self.store.puts.put

        def anywhere(_path: str, content: bytes) -> None:
            while True:
                newest = FilesStore(self.uri).look()
                assert newest is not None
                with suppress(FileExistsError):
                    mine = msgspec.json.decode(content, type=Manifest)
                    after = fingerprint(newest.content)
                    put(
                        path_of(newest.number + 1),
                        encode(msgspec.structs.replace(mine, after=after)),
                    )
                    return

        self.store.puts.put = anywhere
        return super().put(state, change)


class Overwrites(RealSink):
    """Puts its manifest without the condition, as a rename does, or a store that takes
    no notice of it.
    """

    def put(self, state: Any, change: TableChange) -> Answer:
        self.store.puts.put = lambda path, content: (Path(self.uri) / path).write_bytes(content)
        return super().put(state, change)


class TakenMeansDone(RealSink):
    """Believes that a name that is taken was taken by itself."""

    def put(self, state: Any, change: TableChange) -> Answer:
        answer = super().put(state, change)
        return Written(state.version + 1) if isinstance(answer, Conflict) else answer


class RetriesBlindly(RealSink):
    """Finds the name taken, and puts its files behind what is there now without looking
    what that is, as an append does that retries.
    """

    def put(self, state: Any, change: TableChange) -> Answer:
        answer = self.once(state, change)
        while isinstance(answer, Conflict):
            with FilesStore(self.uri).writing() as newest:
                answer = self.once(newest, change)
        return answer
