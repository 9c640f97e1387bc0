"""A lookup in MariaDB works with the privilege of docs/permissions.md, and needs it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pymysql
import pytest

from tests.lookups.mariadb.server import mariadb
from windrow.ingest.errors import SpecError
from windrow.ingest.lookups.sql.kind import SqlSection


@pytest.mark.long
def test_the_privilege_is_needed_and_enough() -> None:
    """A user without SELECT is refused by an error with the statement that grants it."""
    with tempfile.TemporaryDirectory(prefix="windrow-my-") as folder, mariadb(Path(folder)) as url:
        address = urlsplit(url)
        with (
            pymysql.connect(host=address.hostname, port=address.port, user="me") as connection,
            connection.cursor() as cursor,
        ):
            for statement in (
                "CREATE TABLE test.customers (id INTEGER PRIMARY KEY)",
                "CREATE TABLE test.others (id INTEGER PRIMARY KEY)",
                "CREATE USER loader",
                "GRANT SELECT ON test.others TO loader",
            ):
                cursor.execute(statement)
            source = SqlSection(sql=url.replace("me@", "loader@"), relation="customers").source(
                Path("/")
            )
            with pytest.raises(SpecError, match="lacks SELECT on") as caught:
                source.schema()
            cursor.execute(caught.value.advice.partition("superuser: ")[2])
            assert source.schema().names == ["id"]
