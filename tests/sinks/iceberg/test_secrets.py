"""Credentials of an object store: tasks find them by themselves, and a pickled task contains
none.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.s3.server import S3Server
from tests.sinks.iceberg.rest import TOKEN, Server, serving
from tests.sinks.iceberg.test_places import runs
from tests.sinks.iceberg.world import IcebergBoth
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.settings.secrets import InEnvironment, InFile
from windrow.ingest.sinks.iceberg.catalog_table import CatalogTable, Property
from windrow.ingest.sinks.iceberg.catalogs import reason
from windrow.ingest.sinks.iceberg.stage import IcebergStagerFactory
from windrow.ingest.testing.contracts.windows import ROWS, plan, stage_split

# PyIceberg's HTTP session stays open
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")]

CANARY = "canary-8d21"
"""The secret in the file, and in the properties that a catalog gives out."""


@pytest.fixture
def plain(s3_server: S3Server) -> dict[str, Property]:
    """The store's properties that may be sent to tasks.

    This process has no other access to the store.
    """
    return {
        "s3.endpoint": f"http://127.0.0.1:{s3_server.port}",
        "s3.region": "us-east-1",
        "s3.access-key-id": "windrow",
    }


@pytest.fixture
def secret_properties(
    tmp_path: Path, s3_server: S3Server, plain: dict[str, Property], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Property]:
    """Properties of a catalog whose warehouse is in an object store, with one secret in the
    environment and one in a file.
    """
    monkeypatch.setenv("LAKE_SECRET", s3_server.secret)
    (tmp_path / "token").write_text(f"{CANARY}\n")
    secrets: dict[str, Property] = {
        "s3.secret-access-key": InEnvironment("LAKE_SECRET"),
        "s3.session-token": InFile(str(tmp_path / "token")),
    }
    return {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{s3_server.bucket()}/house",
        **plain,
        **secrets,
    }


def prepared(properties: dict[str, Property]) -> IcebergBoth:
    sink = IcebergBoth(CatalogTable.in_catalog("shop.orders", properties), ROWS)
    sink.prepare()
    return sink


def pack_for_tasks(sink: IcebergBoth) -> tuple[bytes, list[IcebergStagerFactory]]:
    """Returns the pickled bytes for tasks, and the stagers unpickled from them: for rows and
    for dead letters.
    """
    planned = plan(sink, 0)
    packed = [pickle.dumps(maker.stager(planned, 0, "a1")) for maker in (sink, sink.dead_letters)]
    progress = pickle.dumps(sink.progress_folder())
    with pickle.loads(progress).open_output("j-worker") as out:
        out.write(b"[]")
    return progress + b"".join(packed), [pickle.loads(pickled) for pickled in packed]


def test_a_table_in_an_object_store(secret_properties: dict[str, Property]) -> None:
    """A table whose credentials are references works like any other table."""
    runs(IcebergBoth(CatalogTable.in_catalog("shop.orders", secret_properties), ROWS))


def test_no_secret_is_sent_to_tasks(
    secret_properties: dict[str, Property], s3_server: S3Server
) -> None:
    """Neither secret is in the pickled task or in its repr.

    The task reads both by itself, and writes.
    """
    sink = prepared(secret_properties)
    packed, stagers = pack_for_tasks(sink)
    for secret in (s3_server.secret, CANARY):
        assert secret.encode() not in packed
        assert secret not in f"{stagers} {sink.identity} {sink.catalog_table}"
    properties = stagers[0].storage.properties()
    assert (properties["s3.secret-access-key"], properties["s3.session-token"]) == (
        s3_server.secret,
        CANARY,
    )
    split = plan(sink, 0).splits[0]
    assert stage_split(stagers[0](split), stagers[1](split), split, dead=True).rows


def test_a_secret_that_changes(secret_properties: dict[str, Property], tmp_path: Path) -> None:
    """A secret that changed in its file is used by tasks that begin later, and by the next look
    of a running process.
    """
    _, (rows, _) = pack_for_tasks(prepared(secret_properties))
    (tmp_path / "token").write_text("another")
    assert rows.storage.properties()["s3.session-token"] == "another"
    sink = IcebergBoth(CatalogTable.in_catalog("shop.orders", secret_properties), ROWS)
    assert pack_for_tasks(sink)[1][0].storage == rows.storage
    from windrow.ingest.sinks.iceberg.catalogs import open_catalog

    assert open_catalog(sink.catalog_table).properties["s3.session-token"] == "another"


def test_a_secret_that_is_not_where_it_should_be(
    secret_properties: dict[str, Property], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task names the variable or file that is missing, and its property, and no other
    property's value.
    """
    sink = prepared(secret_properties)
    _, (rows, dead) = pack_for_tasks(sink)
    split = plan(sink, 0).splits[0]
    (tmp_path / "token").write_bytes(b"\n")
    with pytest.raises(
        SpecError, match=r"token, which sink\.catalog\.s3\.session-token refers to, is empty"
    ):
        stage_split(rows(split), dead(split), split, dead=True)
    (tmp_path / "token").unlink()
    with pytest.raises(
        SpecError,
        match=(
            r"token, which sink\.catalog\.s3\.session-token refers to, can't be read here: No such"
            r" file"
        ),
    ):
        stage_split(rows(split), dead(split), split, dead=True)
    monkeypatch.delenv("LAKE_SECRET")
    with pytest.raises(
        SpecError,
        match=(
            r"the environment variable LAKE_SECRET, which sink\.catalog\.s3\.secret-access-key"
            r" refers to"
        ),
    ):
        stage_split(rows(split), dead(split), split, dead=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("s3.secret-access-key", CANARY),
        ("s3.session-token", CANARY),
        ("client.secret-access-key", CANARY),
        ("adls.account-key", CANARY),
        ("adls.sas-token", CANARY),
        ("gcs.oauth2.token", CANARY),
        ("s3.proxy-uri", f"http://me:{CANARY}@proxy"),
    ],
)
def test_a_secret_that_is_written_out(name: str, value: str) -> None:
    """A secret that tasks need and that is written out is refused before anything is read.

    The error doesn't contain it.
    """
    with pytest.raises(
        SpecError, match=rf"sink\.catalog\.{name} is written out.*\{{env: NAME\}}"
    ) as refused:
        CatalogTable.in_catalog("shop.orders", {"type": "rest", name: value})
    assert CANARY not in str(refused.value)


def test_what_a_table_is_called_is_no_secret() -> None:
    """A property that is part of a table's identity may not be a reference, because the
    identity is stored for ever.
    """
    with pytest.raises(SpecError, match=r"sink\.catalog\.uri is a reference"):
        CatalogTable.in_catalog("shop.orders", {"type": "rest", "uri": InEnvironment("X")})


@pytest.fixture
def giving(
    s3_server: S3Server, tmp_path: Path, plain: dict[str, Property], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Server, str]]:
    """A catalog that gives out storage credentials with each table."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    monkeypatch.setenv("LAKE_TOKEN", TOKEN)
    config: dict[str, Any] = {
        **plain,
        "s3.secret-access-key": s3_server.secret,
        "s3.session-token": CANARY,
    }
    with serving(tmp_path, f"{s3_server.bucket()}/house", config) as both:
        yield both


def test_credentials_that_a_catalog_gives_out(
    giving: tuple[Server, str], s3_server: S3Server
) -> None:
    """Each task asks the catalog for storage credentials, with a credential that it reads by
    itself; none of them is sent.
    """
    server, url = giving
    sink = prepared({"type": "rest", "uri": url, "token": InEnvironment("LAKE_TOKEN")})
    packed, (rows, dead) = pack_for_tasks(sink)
    assert not [secret for secret in (TOKEN, CANARY, s3_server.secret) if secret.encode() in packed]
    server.config["s3.session-token"] = "of the next hour"
    assert rows.storage.properties()["s3.session-token"] == "of the next hour"
    split = plan(sink, 0).splits[0]
    assert stage_split(rows(split), dead(split), split, dead=True).rows
    runs(sink)


def test_a_table_that_is_gone_when_a_task_asks(giving: tuple[Server, str]) -> None:
    """A task raises RefusedError if the table is gone."""
    server, url = giving
    _, (rows, _) = pack_for_tasks(
        prepared({"type": "rest", "uri": url, "token": InEnvironment("LAKE_TOKEN")})
    )
    server.catalog.drop_table("shop.orders")
    with pytest.raises(RefusedError, match=r"shop\.orders isn't there any more"):
        rows.storage.properties()


def test_a_catalog_that_tasks_cannot_ask(giving: tuple[Server, str]) -> None:
    """A catalog's own credential that is written out is refused, because it would have to be
    sent to tasks.

    The error names both remedies, and doesn't contain the credential.
    """
    sink = prepared({"type": "rest", "uri": giving[1], "token": TOKEN})
    with pytest.raises(
        SpecError, match=r"and sink\.catalog\.token may be secret\. Write \{env: NAME\}"
    ) as refused:
        sink.stager(plan(sink, 0), 0, "a1")
    assert TOKEN not in str(refused.value)


def test_an_error_of_a_driver_holds_no_property_but_public_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tokens, keys and passwords in addresses are masked in another library's error text."""
    address = "postgresql://me:hunter22@db/lake"
    secrets = {"token": "tok-8f3a", "s3.secret-access-key": "key-77c1", "credential": "id:cred-5"}
    for number, value in enumerate(secrets.values()):
        monkeypatch.setenv(f"LAKE_{number}", value)
    named = {name: InEnvironment(f"LAKE_{number}") for number, name in enumerate(secrets)}
    table = CatalogTable.in_catalog("shop.orders", {"uri": address, **named})
    text = reason(table, ValueError(f"{address} refused {' and '.join(secrets.values())}"))
    assert text.startswith("ValueError: ")
    assert "refused <token> and <s3.secret-access-key> and <credential>" in text
    assert "hunter22" not in text
