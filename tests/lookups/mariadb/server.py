"""A MariaDB server on loopback, from packages of the system that are unpacked and not installed."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.harness.environments import debian, environment_folder
from windrow.ingest.kafka.embedded.server import free_port

TABLES = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
)
"""The scripts that set up a new server. The server's own tool for it needs further packages."""


@contextmanager
def mariadb(folder: Path) -> Iterator[str]:
    """Yields the URL of a database `test` for the user `me`, who has all rights and no password."""
    home = environment_folder("mariadb", Path(__file__).parent, debian)
    shares = home / "usr/share/mysql"
    libraries = ":".join(sorted({str(path.parent) for path in home.rglob("*.so.*")}))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    server = [
        home / "usr/sbin/mariadbd",
        "--no-defaults",
        f"--user={pwd.getpwuid(os.getuid()).pw_name}",  # needed if the user is root
        f"--datadir={folder}",
        f"--lc-messages-dir={shares}",
        f"--character-sets-dir={shares}/charsets",
        "--innodb-log-file-size=8M",
        "--log-warnings=0",
    ]
    first = ["CREATE DATABASE mysql;", "USE mysql;", "SET @auth_root_socket=NULL;"]
    last = [
        "FLUSH PRIVILEGES;",
        "CREATE DATABASE test;",
        "GRANT ALL ON *.* TO me@'%' WITH GRANT OPTION;",
    ]
    tables = ((shares / name).read_text(encoding="utf-8") for name in TABLES)
    subprocess.run(
        [*server, "--bootstrap", "--enforce-storage-engine=", "--sql-mode="],
        input="\n".join([*first, *tables, *last]),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    port = free_port()
    process = subprocess.Popen(
        [
            *server,
            "--bind-address=127.0.0.1",
            f"--port={port}",
            f"--socket={folder}/socket",
            "--skip-name-resolve",
        ],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        while "ready for connections" not in (line := process.stderr.readline()):
            assert line, "it ended before it was up"
        yield f"mysql://me@127.0.0.1:{port}/test"
    finally:
        process.terminate()
        process.wait(60)
        process.stderr.close()
