"""`lookup` steps between real Kafka and a real table, by the command, on Spark."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.integration.harness import millis
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce
from tests.lookups.test_http import Reply, ServiceRequest, cut, serving
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import load_spec
from windrow.ingest.errors import SpecError

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]

STEP = """\
transform:
  steps:
    - lookup: shops
      key: {id: id}
      take: {city: city}
      from: {table: shops}
      on_miss: dead
"""
SHOP = """\
import pandera.polars as pa
import polars as pl

class Shop(pa.DataFrameModel):
    id: pl.Int32
    city: pl.String
"""
WINDOW = "2026-01-05T01:00:00Z"


@pytest.fixture
def user(kafka: str, tmp_path: Path) -> User:
    """A user with a pipeline of things 1 to 4 that looks up their cities, before its first run."""
    topic = create_topic(kafka, 1)
    things = [Put(json.dumps({"id": n, "name": "x"}).encode(), millis(1, n)) for n in range(1, 5)]
    produce(kafka, topic, things)
    user = User(kafka, topic, tmp_path)
    spec = tmp_path / "things.yaml"
    spec.write_text(spec.read_text().replace("max_dead_ratio: 0.1", "max_dead_ratio: 1.0") + STEP)
    shops(tmp_path, {1: "Kyiv", 2: "Lviv", 3: "Odesa"})
    return user


def shops(folder: Path, cities: dict[int, str]) -> None:
    rows = {"id": pa.array(list(cities), pa.int32()), "city": pa.array(list(cities.values()))}
    write_deltalake(folder / "shops", pa.table(rows), mode="overwrite")


def cities_of(folder: Path) -> dict[int, str]:
    rows = DeltaTable(folder / "things").to_pyarrow_table(columns=["id", "city"]).to_pylist()
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: row["city"] for row in rows}


def receipt(user: User) -> dict[str, Any]:
    (window,) = user.types("show")["windows"]
    receipt: dict[str, Any] = window["receipt"]
    return receipt


def test_a_replay_gives_the_same_rows(user: User, tmp_path: Path) -> None:
    """A replay gives the same rows, although the looked-up table and the ledger have changed.

    Fresh answers come only with `--fresh-lookups` and for dead letters.
    """
    user.types("run", "--window", WINDOW)
    first = {1: "Kyiv", 2: "Lviv", 3: "Odesa"}
    assert cities_of(tmp_path) == first
    (pin,) = receipt(user)["pins"]
    assert pin["version"].startswith("0@")
    (looked_up,) = receipt(user)["splits"][0]["lookups"]
    assert (looked_up["keys"], looked_up["hits"], looked_up["misses"]) == (4, 3, 1)

    shops(tmp_path, {1: "Lutsk", 3: "Odesa", 4: "Sumy"})
    (tmp_path / "state.db").unlink()
    user.types("doctor", "--rebuild-ledger")
    user.types("replay", "--window", WINDOW)
    assert cities_of(tmp_path) == first
    assert receipt(user)["pins"] == [pin]
    assert receipt(user)["splits"][0]["lookups"][0]["answers"] == looked_up["answers"]

    user.types("dead", "replay", "--window", WINDOW)
    assert cities_of(tmp_path) == first | {4: "Sumy"}
    assert receipt(user)["dead_replay"]["pins"][0]["version"].startswith("1@")

    user.types("replay", "--window", WINDOW, "--fresh-lookups", "--accept-fewer")
    assert cities_of(tmp_path) == {1: "Lutsk", 3: "Odesa", 4: "Sumy"}
    assert receipt(user)["pins"][0]["version"].startswith("1@")
    assert user.types("verify", "--deep")["findings"] == []


BY_VECTOR = """\
    - sql: SELECT *, [CAST(id AS FLOAT), 1] AS place FROM rows
    - lookup: shops
      nearest: {place: place}
      top_k: 2
      metric: l2
      into: near
      take: {city: city}
      from: {table: shops}
    - sql: SELECT * EXCLUDE (place) FROM rows
"""


@pytest.mark.long
def test_a_replay_finds_the_same_neighbours(user: User, tmp_path: Path) -> None:
    """A replay finds the same neighbours and scores after the table has changed.

    Its batches are different ones. `--fresh-lookups` finds the current ones.
    """

    def write_places(cities: dict[str, float]) -> None:
        places = pa.array([[x, 1.0] for x in cities.values()], pa.list_(pa.float32()))
        rows = pa.table({"city": list(cities), "place": places})
        write_deltalake(tmp_path / "shops", rows, mode="overwrite", schema_mode="overwrite")

    def near() -> dict[int, Any]:
        rows = DeltaTable(tmp_path / "things").to_pyarrow_table(columns=["id", "near"])
        return {row["id"]: row["near"] for row in rows.to_pylist()}

    spec = tmp_path / "things.yaml"
    text = spec.read_text()
    spec.write_text(text[: text.index("    - lookup")] + BY_VECTOR)
    write_places({"Kyiv": 0.5, "Lviv": 1.1, "Odesa": 9.7})
    user.types("run", "--window", WINDOW)
    first = near()
    assert [match["city"] for match in first[1]] == ["Lviv", "Kyiv"]
    assert [match["score"] for match in first[1]] == pytest.approx([0.1, 0.5], abs=1e-6)
    (looked_up,) = receipt(user)["splits"][0]["lookups"]
    assert (looked_up["keys"], looked_up["hits"], looked_up["misses"]) == (4, 4, 0)

    write_places({"Sumy": 1.0})
    spec.write_text(spec.read_text().replace("source: {", "source: {tuning: {batch_messages: 1}, "))
    user.types("replay", "--window", WINDOW)
    assert near() == first
    assert receipt(user)["splits"][0]["lookups"][0]["answers"] == looked_up["answers"]
    user.types("replay", "--window", WINDOW, "--fresh-lookups")
    assert near() == {n: [{"city": "Sumy", "score": n - 1.0}] for n in range(1, 5)}
    assert user.types("verify", "--deep")["findings"] == []


def test_a_retry_keeps_to_the_version_of_the_first_try(user: User, tmp_path: Path) -> None:
    """A retry looks up in the version that the first try pinned.

    1. A run is refused after its plan.
    2. The next run uses the same version, until that version is vacuumed.
    3. Then the error's own advice works.
    """
    spec = tmp_path / "things.yaml"
    strict = spec.read_text()
    spec.write_text(strict.replace("on_miss: dead", "on_miss: fail"))
    refused = json.dumps(user.types("run", "--window", WINDOW, code=1))
    assert "shops has no row for the key of 1 of 4 rows" in refused
    assert "--fresh-lookups" in refused
    shops(tmp_path, dict.fromkeys(range(1, 5), "Sumy"))
    assert "shops has no row for the key of 1 of 4 rows" in json.dumps(
        user.types("run", "--window", WINDOW, code=1)
    )
    DeltaTable(tmp_path / "shops").vacuum(0, dry_run=False, enforce_retention_duration=False)
    error_text = json.dumps(user.types("run", "--window", WINDOW, code=1))
    assert "can't be read any more" in error_text
    assert "--fresh-lookups" in error_text
    user.types("run", "--window", WINDOW, "--fresh-lookups")
    assert cities_of(tmp_path) == dict.fromkeys(range(1, 5), "Sumy")
    (pin,) = receipt(user)["pins"]
    assert not pin["version"].startswith("0@")


@pytest.mark.long
def test_a_database_is_asked_in_one_state(user: User, tmp_path: Path, database: str) -> None:
    """Each task joins the driver's snapshot of PostgreSQL.

    A replay asks the database again. `verify` reports the windows that used its answers.
    """
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE shops (id int PRIMARY KEY, city text)")
        connection.execute("INSERT INTO shops VALUES (1, 'Kyiv'), (2, 'Lviv')")
    spec = tmp_path / "things.yaml"
    source_line = f"from: {{sql: '{database}', relation: shops}}"
    spec.write_text(spec.read_text().replace("from: {table: shops}", source_line))
    user.types("run", "--window", WINDOW)
    assert cities_of(tmp_path) == {1: "Kyiv", 2: "Lviv"}
    (looked_up,) = receipt(user)["splits"][0]["lookups"]
    assert (looked_up["requests"], looked_up["keys"], looked_up["misses"]) == (1, 4, 2)
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO shops VALUES (3, 'Odesa')")
    user.types("replay", "--window", WINDOW)
    assert cities_of(tmp_path) == {1: "Kyiv", 2: "Lviv", 3: "Odesa"}
    (finding,) = user.types("verify", "--deep")["findings"]
    assert finding["level"] == "info"
    assert "rest on answers of postgresql://" in finding["what"]


def test_a_service_that_goes_away_in_mid_window(user: User, tmp_path: Path) -> None:
    """A service that fails during a window makes the window fail with a retryable error.

    Nothing becomes visible, and the second run commits. A refused key is a dead letter, and a
    row after the service accepts it.
    """
    (tmp_path / "shop.py").write_text(SHOP)
    cities, up, refused = {1: "Kyiv", 2: "Lviv", 3: "Odesa"}, [False], [{"4"}]

    def reply(request: ServiceRequest) -> Reply:
        if request.key in refused[0]:
            return Reply({"error": "no such shop"}, 422)
        if int(request.key) > 2 and not up[0]:
            return Reply(worse=cut)
        return Reply({"city": cities.get(int(request.key), "Sumy")})

    with serving(reply) as service:
        source_line = f"from: {{http: '{service.url}/{{id}}', schema: shop.py:Shop, timeout: 2s}}"
        spec = tmp_path / "things.yaml"
        spec.write_text(spec.read_text().replace("from: {table: shops}", source_line))
        failed = json.dumps(user.types("run", "--window", WINDOW, code=3))
        assert f"{service.url} gives no answer that can be used" in failed
        assert not DeltaTable.is_deltatable(str(tmp_path / "things")) or not cities_of(tmp_path)
        up[0] = True
        user.types("run", "--window", WINDOW)
        assert cities_of(tmp_path) == cities
        (looked_up,) = receipt(user)["splits"][0]["lookups"]
        assert (looked_up["keys"], looked_up["hits"], looked_up["misses"]) == (4, 3, 0)
        assert looked_up["first_at"] < looked_up["last_at"]
        assert receipt(user)["pins"][0]["version"] == ""
        (finding,) = user.types("verify", "--deep")["findings"]
        assert f"rest on answers of {service.url}/{{id}}" in finding["what"]
        refused[0] = set()
        user.types("dead", "replay", "--window", WINDOW)
        assert cities_of(tmp_path) == cities | {4: "Sumy"}


@pytest.mark.long
def test_a_database_that_fails_in_the_middle_of_a_window(
    user: User, tmp_path: Path, database: str
) -> None:
    """A failure of the database commits nothing, and the error's advice works.

    The database cuts its connections, is too slow, or has two rows for a key.
    """

    def run_in_database(*statements: str) -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload]

    def view(also: str) -> str:
        return f"CREATE OR REPLACE VIEW shops AS SELECT id, city FROM all_shops{also}"

    run_in_database(
        "CREATE TABLE all_shops (id int, city text, since int)",
        "INSERT INTO all_shops VALUES (1, 'Kyiv', 1), (2, 'Lviv', 1), (2, 'Lutsk', 2)",
        view(
            ", (SELECT bool_or(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE"
            " datname = current_database()) AS gone"
        ),
    )
    spec = tmp_path / "things.yaml"
    source_line = f"from: {{sql: '{database}', relation: shops, timeout: 1s}}"
    text = spec.read_text().replace("from: {table: shops}", source_line)
    spec.write_text(text)

    def fails(code: int) -> str:
        error = user.types("run", "--window", WINDOW, code=code)["error"]
        assert not (tmp_path / "things").exists() or not cities_of(tmp_path)
        assert user.types("show")["windows"] == []
        return json.dumps(error)

    assert "doesn't answer" in fails(3)
    run_in_database(view(", pg_sleep(30)"))
    slow = fails(3)
    assert "a question took longer than 1 s" in slow
    assert "`timeout`" in slow
    run_in_database(view(""))
    twice = fails(1)
    assert "shops has several rows of one key" in twice
    assert "first_by" in twice
    run_in_database("DROP VIEW shops", "CREATE VIEW shops AS SELECT * FROM all_shops")
    spec.write_text(text.replace("on_miss: dead", "on_miss: dead\n      first_by: since desc"))
    user.types("run", "--window", WINDOW)
    assert cities_of(tmp_path) == {1: "Kyiv", 2: "Lutsk"}


def test_what_a_table_that_shows_a_window_piece_by_piece_takes(
    user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that shows a window in pieces takes only lookups whose answers are repeatable.

    These are lookups in pinned tables, not in databases or services.
    """
    monkeypatch.setenv("BROKER", user.setup.bootstrap)
    spec = tmp_path / "things.yaml"
    text = spec.read_text().replace(
        "kind: delta, path: ./things", "kind: kafka, topic: x, staging: ."
    )
    spec.write_text(text)
    assemble(load_spec(spec))
    with closing(sqlite3.connect(tmp_path / "there.db")) as database:
        database.execute("CREATE TABLE shops (id BIGINT, city TEXT)")
    spec.write_text(text.replace("table: shops", "sql: 'sqlite:///there.db', relation: shops"))
    with pytest.raises(SpecError, match=r"transform\.steps\.0 needs a table that shows a window"):
        assemble(load_spec(spec))
    (tmp_path / "shop.py").write_text(SHOP)
    spec.write_text(text.replace("table: shops", "http: 'https://shop/{id}', schema: shop.py:Shop"))
    with pytest.raises(SpecError, match=r"transform\.steps\.0 needs a table that shows a window"):
        assemble(load_spec(spec))


def test_its_steps_are_shown(user: User) -> None:
    """`peek --rows` performs the lookups, and shows the rows without an answer."""
    step = user.types("peek", "--rows", "--start", "earliest")["steps"][-1]
    assert step["name"] == "transform.steps.0"
    assert [row["city"] for row in step["rows"]] == ["Kyiv", "Lviv", "Odesa"]
    (left_out_row,) = step["left_out"]
    assert left_out_row["why"] == "dead at rules: lookup:shops:no_match"
