"""Sink, ledger and lookup in PostgreSQL work with the privileges of docs/permissions.md.

Each privilege is needed, and an error names the one that is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.permissions.features import POSTGRES, SqlFeature
from tests.sinks.postgres.world import PostgresKeyedBoth, place_of, sink_at
from windrow.ingest.errors import SpecError, WindrowError
from windrow.ingest.ledger import database as ledger_database
from windrow.ingest.ledger.sql import open_ledger
from windrow.ingest.lookups.sql import source as lookup_source
from windrow.ingest.lookups.sql.kind import SqlSection
from windrow.ingest.ports.sink import Done
from windrow.ingest.schema.primary_key import PrimaryKey
from windrow.ingest.sinks.postgres import server as sink_server
from windrow.ingest.testing.contracts.windows import ROWS, staged_receipt, window

pytestmark = pytest.mark.slow  # starts a server

STATEMENT = re.compile(r"(?:GRANT|ALTER TABLE) [^;]+")
"""A statement that an error names."""


class Scene:
    """A database whose owner has made what a feature needs, and a use of each feature.

    Attributes:
        run: runs a statement as the owner.
    """

    def __init__(self, database: str, user: str, run: Callable[[str], object]) -> None:
        self.owner, self.run = database, run
        self.user = database.replace("postgres:@", f"{user}:@")

    def prepare(self, feature: SqlFeature) -> None:
        """Makes what the feature finds, as the owner."""
        if feature.name == "sink_with_own_tables":
            self.sink(self.owner).prepare()
            self.run("DELETE FROM windrow.targets")
            self.run("DROP TABLE IF EXISTS sales.orders, sales.orders_dead")
        if feature.name == "ledger_with_table":
            open_ledger(self.owner).identity()
        if feature.name == "lookup":
            self.run("CREATE TABLE sales.customers (id integer PRIMARY KEY)")

    def named(self, statement: str) -> str:
        """Returns a statement of the page with the names of this scene."""
        user = self.user.partition("://")[2].partition(":@")[0]
        database = self.user.partition("?")[0].rpartition("/")[2]
        return statement.replace("DATABASE shop", f"DATABASE {database}").replace("loader", user)

    @staticmethod
    def sink(url: str, *, keyed: bool = False) -> Any:
        """Returns the table."""
        if keyed:
            return PostgresKeyedBoth(place_of(f"{url}#sales.orders"), ROWS, PrimaryKey(("id",)))
        return sink_at(f"{url}#sales.orders")

    # ----------------------------------------------------------------------------- the features

    def sink_makes_all(self, *, keyed: bool = False) -> None:
        """Makes the table, commits a window and its dead letters, replaces it and reads it."""
        sink = self.sink(self.user, keyed=keyed)
        sink.prepare()
        for generation, attempt in enumerate(("a1", "a2")):
            receipt, staged = staged_receipt(sink, 0, generation, attempt)
            sink.commit_dead(receipt.plan, attempt, staged)
            assert isinstance(sink.commit(receipt, staged), Done)
        assert sink.audit().windows() == {window(0).key}

    sink_with_own_tables = sink_makes_all

    def keyed_sink(self) -> None:
        """The same with a primary key."""
        self.sink_makes_all(keyed=True)

    def ledger_makes_table(self) -> None:
        """Reads the ledger, and records in it."""
        ledger = open_ledger(self.user)
        ledger.identity()
        assert ledger.bind_grid("orders", "hourly") == "hourly"
        ledger.adopt_identity("the table's")
        ledger.database.engine.dispose()

    ledger_with_table = ledger_makes_table

    def lookup(self) -> None:
        """Asks for the columns of a table, and for keys."""
        source = SqlSection(sql=self.user, relation="sales.customers").source(Path("/"))
        columns = source.schema()
        with source.hold(source.version(), 1) as version:
            source.open(version, columns)(pa.table({"id": pa.array([1], pa.int32())}))


@pytest.fixture
def scene(database: str) -> Iterator[Scene]:
    """A database, and a user without any privilege in it."""
    user = f"u{database.partition('/test_')[2][:12]}"
    with psycopg.connect(database, autocommit=True) as connection:

        def run(statement: str) -> object:
            return connection.execute(statement)

        run(f"CREATE ROLE {user} LOGIN")
        run("CREATE SCHEMA sales")
        run("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        try:
            yield Scene(database, user, run)
        finally:
            open_ledger(database).database.engine.dispose()
            open_ledger(database.replace("postgres:@", f"{user}:@")).database.engine.dispose()
            run(f"REASSIGN OWNED BY {user} TO postgres")
            run(f"DROP OWNED BY {user}")
            run(f"DROP ROLE {user}")


CASES = [
    pytest.param(feature, lacking, id=f"{feature.name}-without-{lacking}".replace(" ", "-"))
    for feature in POSTGRES
    for lacking in feature.statements
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("feature", "lacking"), CASES)
def test_each_privilege_is_needed_and_all_are_enough(
    scene: Scene, feature: SqlFeature, lacking: str
) -> None:
    """A user who lacks one privilege of a feature is refused by an error that grants it.

    The feature works then: no further privilege is needed.
    """
    scene.prepare(feature)
    for statement in feature.statements:
        if statement != lacking:
            scene.run(scene.named(statement))
    use: Callable[[], None] = getattr(scene, feature.name)
    with pytest.raises(SpecError) as caught:
        use()
    assert STATEMENT.findall(caught.value.advice) == [scene.named(lacking)]
    scene.run(scene.named(lacking))
    use()


def test_what_only_a_later_run_needs_is_told_before(scene: Scene) -> None:
    """Doctor's check of the ledger names a privilege that no question has needed yet."""
    ledger = next(feature for feature in POSTGRES if feature.name == "ledger_with_table")
    scene.prepare(ledger)
    *others, lacking = ledger.statements
    for statement in others:
        scene.run(scene.named(statement))
    used = open_ledger(scene.user)
    used.identity()
    with pytest.raises(SpecError) as caught:
        used.refuse_unwritable()
    assert STATEMENT.findall(caught.value.advice) == [scene.named(lacking)]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("sink_makes_all", sink_server),
        ("ledger_makes_table", ledger_database),
        ("lookup", lookup_source),
    ],
)
def test_a_server_that_does_not_tell_the_lacking_privileges(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, name: str, module: Any
) -> None:
    """A missing privilege is windrow's error, too, if the server can't be asked which one it is."""
    (feature,) = (feature for feature in POSTGRES if feature.name == name)
    scene.prepare(feature)
    for statement in feature.statements[:-1]:
        scene.run(scene.named(statement))
    monkeypatch.setattr(module, "LACKING", "SELECT no_column, %s, %s, %s, %s")
    with pytest.raises(WindrowError, match="permission denied") as caught:
        getattr(scene, name)()
    assert STATEMENT.findall(str(caught.value)) == []
    assert caught.value.__suppress_context__, "the driver's text may repeat a request"
