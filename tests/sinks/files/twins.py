"""Broken logs of a table of files. Each differs from the real one in one step."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from windrow.ingest.sinks.files.manifest import Manifest, encode, fingerprint, path_of
from windrow.ingest.sinks.files.store import FilesStore


def takes_the_next_free_number(sink: Any) -> None:
    """Makes a sink put its manifest at the next free number, not at the number after the
    manifest that it looked at.
    """
    put = sink.store.puts.put

    def anywhere(_path: str, content: bytes) -> None:
        while True:
            newest = FilesStore(sink.uri).look()
            assert newest is not None
            with suppress(FileExistsError):
                manifest, previous_content = (
                    msgspec.json.decode(content, type=Manifest),
                    newest.content,
                )
                manifest = msgspec.structs.replace(
                    manifest, previous_fingerprint=fingerprint(previous_content)
                )
                put(path_of(newest.number + 1), encode(manifest))
                return

    sink.store.puts.put = anywhere


def overwrites(sink: Any) -> None:
    """Makes a sink overwrite a manifest: a rename does that, or a store that ignores the
    condition.
    """
    sink.store.puts.put = lambda path, content: (Path(sink.uri) / path).write_bytes(content)
