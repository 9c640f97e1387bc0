"""A PostgreSQL with OpenSSL on loopback, as a cloud has it: TLS, SCRAM and certificates.

The test kit's PostgreSQL is built without OpenSSL.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from tests.debian_server import running, unpack
from tests.kafka.certificates import CertificateIssuer
from tests.kafka.listener import TLS
from windrow.ingest.kafka.embedded.server import free_port

CA = TLS / "broker.pem"
"""The server's certificate, which is its own authority. It names 127.0.0.1, and no other host."""

_HBA = """\
hostssl all by_certificate 127.0.0.1/32 cert
hostssl all all            127.0.0.1/32 scram-sha-256
local   all all                         trust
"""


class TlsServer(msgspec.Struct, frozen=True):
    """A server with a database `shop`.

    Attributes:
        port: its port, which takes TLS alone.
        folder: the folder of its socket, by which the user `postgres` needs no password.
        certificate: the certificate (PEM) of the user `by_certificate`.
        key: its private key (PEM).
    """

    port: int
    folder: Path
    certificate: Path
    key: Path

    def url(self, user: str, host: str = "127.0.0.1", **options: object) -> str:
        """Returns the URL of the database, whose server must be the expected one."""
        query = {"sslmode": "verify-full", "sslrootcert": CA, **options}
        words = "&".join(f"{name}={value}" for name, value in query.items())
        return f"postgresql://{user}@{host}:{self.port}/shop?{words}"

    def run(self, statement: str, database: str = "shop") -> list[tuple[object, ...]]:
        """Runs a statement as the owner of the server, and returns its rows."""
        with psycopg.connect(
            host=str(self.folder),
            port=self.port,
            user="postgres",
            dbname=database,
            autocommit=True,
        ) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return list(cursor.fetchall() if cursor.description else [])

    def set_password(self, user: str, password: str) -> None:
        """Gives a user another password."""
        self.run(f"ALTER ROLE {user} PASSWORD '{password}'")


@contextmanager
def tls_server(folder: Path) -> Iterator[TlsServer]:
    """Runs a server with the users `by_password` and `by_certificate`.

    Args:
        folder: a folder whose path any user can reach, since PostgreSQL doesn't run as root.
    """
    home, environment = unpack("postgresql", Path(__file__).parent)
    (programs,) = home.glob("usr/lib/postgresql/*/bin")
    data, port = folder / "data", free_port()
    issuer = CertificateIssuer(folder)
    client = issuer.issue(folder, days=1, name="by_certificate")
    key = Path(str(client["ssl.key.location"]))
    key.chmod(0o600)
    for name in ("broker.pem", "broker.key.pem"):
        shutil.copy(TLS / name, folder / name)
    owner: dict[str, Any] = {}
    if os.geteuid() == 0:
        owner = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        for path in (folder, folder / "broker.key.pem"):
            shutil.chown(path, "nobody", "nogroup")
    (folder / "broker.key.pem").chmod(0o600)
    subprocess.run(
        [programs / "initdb", "--no-sync", "--auth=trust", "--username=postgres", data],
        env=environment,
        cwd="/",
        capture_output=True,
        check=True,
        timeout=120,
        **owner,
    )
    (data / "pg_hba.conf").write_text(_HBA, encoding="utf-8")
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": port,
        "unix_socket_directories": folder,
        "ssl": "on",
        "ssl_cert_file": folder / "broker.pem",
        "ssl_key_file": folder / "broker.key.pem",
        "ssl_ca_file": issuer.authority_file,
        "password_encryption": "scram-sha-256",
        "fsync": "off",
    }
    options = [f"-c{name}={value}" for name, value in settings.items()]
    command = [programs / "postgres", "-D", data, *options]
    with running(command, environment, "is ready to accept connections", signal.SIGINT, **owner):
        server = TlsServer(port, folder, Path(str(client["ssl.certificate.location"])), key)
        server.run("CREATE DATABASE shop", "postgres")
        for user in ("by_password", "by_certificate"):
            server.run(f"CREATE ROLE {user} LOGIN")
            server.run(
                f"GRANT ALL ON DATABASE shop TO {user}; GRANT ALL ON SCHEMA public TO {user}"
            )
        server.run("GRANT by_password TO by_certificate")
        server.run("CREATE TABLE customers (id integer)")
        server.run("GRANT SELECT ON customers TO by_password")
        yield server
