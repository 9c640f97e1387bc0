"""Logins of lookups at a real MariaDB: TLS, a client's certificate, a password that changes."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pymysql
import pytest
from pydantic import ValidationError

from tests.kafka.certificates import CertificateIssuer
from tests.kafka.listener import TLS
from tests.lookups.mariadb.server import mariadb
from windrow.ingest.errors import SpecError
from windrow.ingest.lookups.sql.kind import SqlSection
from windrow.ingest.ports.lookup import LookupSource
from windrow.ingest.settings.secrets import InCommand

pytestmark = pytest.mark.long

CA = f"ssl_ca={TLS / 'broker.pem'}"


class Server:
    """A MariaDB whose certificate names 127.0.0.1 alone."""

    def __init__(self, folder: Path, url: str, client: dict[str, object]) -> None:
        self.folder, self.port = folder, urlsplit(url).port
        certificate, key = client["ssl.certificate.location"], client["ssl.key.location"]
        self.certificate = f"ssl_cert={certificate}&ssl_key={key}"
        self.run("CREATE TABLE customers (id INTEGER PRIMARY KEY)")
        self.run("CREATE USER by_password REQUIRE SSL")
        self.run("CREATE USER by_certificate REQUIRE X509")
        self.run("GRANT SELECT ON test.* TO by_password")
        self.run("GRANT SELECT ON test.* TO by_certificate")

    def run(self, statement: str) -> None:
        with (
            pymysql.connect(host="127.0.0.1", port=self.port, user="me", database="test") as c,
            c.cursor() as cursor,
        ):
            cursor.execute(statement)

    def source(
        self, user: str, query: str, host: str = "127.0.0.1", password: InCommand | None = None
    ) -> LookupSource:
        url = f"mysql://{user}@{host}:{self.port}/test?{query}"
        return SqlSection(sql=url, relation="customers", password=password).source(self.folder)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="windrow-my-") as folder:
        issuer = CertificateIssuer(Path(folder))
        options = {
            "ssl-ca": issuer.authority_file,
            "ssl-cert": TLS / "broker.pem",
            "ssl-key": TLS / "broker.key.pem",
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        data = Path(folder, "data")
        data.mkdir()
        with mariadb(data, *words) as url:
            yield Server(Path(folder), url, issuer.issue(Path(folder), days=1))


def test_a_password_that_changes(server: Server) -> None:
    """A command's kept output that the server refuses is read again; TLS checks the server."""
    file = server.folder / "password"
    code = f"print(open({str(file)!r}).read())"
    source = server.source(
        "by_password", CA, password=InCommand((sys.executable, "-c", code), (), 600)
    )
    for password in ("C4nary-first", "C4nary-second"):
        file.write_text(password)
        server.run(f"ALTER USER by_password IDENTIFIED BY '{password}'")
        assert source.schema().names == ["id"]
    server.run("ALTER USER by_password IDENTIFIED BY 'C4nary-third'")
    with pytest.raises(SpecError, match="Access denied") as refused:
        source.schema()
    assert "C4nary" not in str(refused.value)


def test_a_client_certificate(server: Server) -> None:
    """A certificate logs in, and without it the user is refused."""
    source = server.source("by_certificate", f"{CA}&{server.certificate}")
    assert source.schema().names == ["id"]
    with pytest.raises(SpecError, match="Access denied"):
        server.source("by_certificate", CA).schema()


def test_another_server_is_refused(server: Server) -> None:
    """`ssl_ca` alone refuses another host and another authority; options that cancel it aren't
    taken.
    """
    for query, host in ((CA, "localhost"), (CA.replace("broker", "other"), "127.0.0.1")):
        with pytest.raises(SpecError, match="certificate verify failed") as refused:
            server.source("by_certificate", f"{query}&{server.certificate}", host).schema()
        assert "ssl_ca in the URL names the file" in refused.value.advice
    with pytest.raises(ValidationError, match="with which PyMySQL ignores ssl_ca"):
        server.source("by_certificate", f"{CA}&ssl_verify_identity=true")
