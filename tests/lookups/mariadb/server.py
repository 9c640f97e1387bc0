"""A MariaDB server on loopback, from packages of the system that are unpacked and not installed."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.debian_server import running, unpack
from windrow.ingest.kafka.embedded.server import free_port

TABLES = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
)
"""The scripts that set up a new server. The server's own tool for it needs further packages."""


@contextmanager
def mariadb(folder: Path, *options: str) -> Iterator[str]:
    """Yields the URL of a database `test` for the user `me`, who has all rights and no password.

    Args:
        folder: the folder of its data.
        options: further options of the server.
    """
    home, environment = unpack("mariadb", Path(__file__).parent)
    shares = home / "usr/share/mysql"
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
    address = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={folder}/socket"]
    command = [*server, *address, "--skip-name-resolve", *options]
    with running(command, environment, "ready for connections"):
        yield f"mysql://me@127.0.0.1:{port}/test"
