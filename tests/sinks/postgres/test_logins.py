"""Logins at a real PostgreSQL with OpenSSL: SCRAM, certificates, and passwords that change."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Stage, hour, stage
from tests.sinks.postgres.server.server import TlsServer, tls_server
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import SpecError
from windrow.ingest.ledger.database import open_database
from windrow.ingest.lookups.sql.kind import SqlSection
from windrow.ingest.settings.secrets import InFile

__all__ = ["stage"]

pytestmark = pytest.mark.long

FIRST, SECOND = "C4nary-first", "C4nary-second"


@pytest.fixture(scope="module")
def server() -> Iterator[TlsServer]:
    """The server; its folder isn't below pytest's own, which other users can't reach."""
    with (
        tempfile.TemporaryDirectory(prefix="windrow-tls-") as folder,
        tls_server(Path(folder)) as running_server,
    ):
        yield running_server


def write_spec(stage: Stage, url: str, login: dict[str, object], table: str) -> None:
    """Gives the spec a table and a ledger at a server, with the same login.

    The pipeline is named after the table, since all of them share the ledger.
    """
    sink = {"kind": "postgres", "url": url, "table": table, "staging": "staged"}
    sink["windrow_schema"] = f"own_{table}"
    stage.sink(json.dumps({**sink, **login}))
    spec = Path(stage.spec)
    state = {"state": url, **{f"state_{name}": value for name, value in login.items()}}
    text = spec.read_text().replace("id: things", f"id: {table}")
    spec.write_text(f"{text}\n{yaml.safe_dump(state)}")


def close_ledger(stage: Stage) -> None:
    """Closes the connection that this process keeps to the ledger."""
    spec = load_spec(stage.spec)
    open_database(spec.state_url(), spec.state_password).engine.dispose()


def test_a_password_that_changes_between_two_windows(server: TlsServer, stage: Stage) -> None:
    """A program prints the password; the second window logs in with the new one.

    The program runs once for each password, although table and ledger connect often. No
    password is in a receipt, a plan, the ledger or an error.
    """
    password_file, runs = stage.folder / "password", stage.folder / "runs"
    program = stage.folder / "print_password.py"
    program.write_text(
        f"open({str(runs)!r}, 'a').write('x'); print(open({str(password_file)!r}).read())"
    )
    command = {"command": [sys.executable, str(program)], "lifetime_seconds": 600}
    (stage.folder / "windrow.yaml").write_text(yaml.safe_dump({"secrets": {"database": command}}))
    write_spec(stage, server.url("by_password"), {"password": {"secret": "database"}}, "things")

    def set_password(password: str) -> None:
        close_ledger(stage)
        password_file.write_text(password)
        server.set_password("by_password", password)

    set_password(FIRST)
    shown = [stage.json("run", stage.spec, "--window", hour(0))]
    assert runs.read_text() == "x"
    set_password(SECOND)
    shown.append(stage.json("run", stage.spec, "--window", hour(1)))
    assert runs.read_text() == "xx"
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []
    shown += [stage.json("show", stage.spec), stage.json("plan", stage.spec, "--window", hour(1))]
    server.set_password("by_password", "another")
    close_ledger(stage)
    refused = stage.call("run", stage.spec, "--window", hour(1))
    assert "password authentication failed" in refused.output
    kept = server.run("SELECT * FROM windrow_ledger_2")
    assert kept
    for text in (json.dumps(shown), refused.output, repr(kept)):
        assert FIRST not in text
        assert SECOND not in text
    close_ledger(stage)


def test_a_client_certificate(server: TlsServer, stage: Stage) -> None:
    """Table and ledger log in by a certificate, which libpq's options in the URL name."""
    url = server.url("by_certificate", sslcert=server.certificate, sslkey=server.key)
    write_spec(stage, url, {}, "certified")
    stage.json("run", stage.spec, "--window", hour(0))
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []
    close_ledger(stage)
    without = open_database(server.url("by_certificate"))
    with pytest.raises(Exception, match="requires a valid client certificate"):
        without.reading().__enter__()
    without.engine.dispose()


def test_another_host_is_refused(server: TlsServer) -> None:
    """With verify-full ledger and lookup refuse a host that the certificate doesn't name."""
    url = server.url("by_password", host="localhost")
    with pytest.raises(SpecError, match="does not match host name") as refused:
        SqlSection(sql=url, relation="pg_class").source(Path("/")).schema()
    assert "Write the host in the URL as the server's certificate names it" in refused.value.advice
    database = open_database(url)
    with pytest.raises(SpecError, match=r"isn't trusted.*does not match host name") as refused:
        database.reading().__enter__()
    assert "Write the host in the URL as the server's certificate names it" in refused.value.advice
    database.engine.dispose()


def test_a_lookup_logs_in(server: TlsServer, tmp_path: Path) -> None:
    """A lookup logs in by a password that changes, and by a certificate."""
    (tmp_path / "password").write_text(FIRST)
    server.set_password("by_password", FIRST)
    password = InFile("password")
    by_password = SqlSection(
        sql=server.url("by_password"), relation="customers", password=password
    ).source(tmp_path)
    assert by_password.schema().names == ["id"]
    (tmp_path / "password").write_text(SECOND)
    server.set_password("by_password", SECOND)
    assert by_password.schema().names == ["id"]
    url = server.url("by_certificate", sslcert=server.certificate, sslkey=server.key)
    by_certificate = SqlSection(sql=url, relation="customers").source(tmp_path)
    assert by_certificate.schema().names == ["id"]
