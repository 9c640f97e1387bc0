"""The pipeline of docs/transforms.md with a step of each kind, on Kafka, PostgreSQL and Spark.

It runs locally, on a cluster and with a Connect server.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.integration.harness import millis
from tests.integration.user import User
from tests.kafka.produce import Put, create_topic, produce
from tests.runner.spark.standalone import cluster
from tests.runner.spark.test_cluster import ON_IT
from tests.shape.readme import ROOT, blocks

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

PAGE = (ROOT / "docs" / "transforms.md").read_text(encoding="utf-8")
WINDOW = "2026-01-05T01:00:00Z"
SPARK = next(line for line in PAGE.splitlines() if "- spark: newest.py:newest" in line)
KYIV, LVIV = ("de", "Ann", "Kyiv"), ("en", None, "Lviv")
"""Language, customer and city, from the steps before and after `spark`."""


def order(id_: int, customer: int, shop: str, amount: float) -> Put:
    text = {"a": "deutsch", "b": "english"}[shop]
    row = {"id": id_, "customer_id": customer, "shop": shop, "amount": amount, "text": text}
    return Put(json.dumps(row).encode(), millis(1, id_), id_ % 2)


@pytest.fixture
def user(kafka: str, database: str, tmp_path: Path) -> User:
    """A user with the page's files, its tables and five messages.

    One order comes twice, one has no amount, and one message is no JSON.
    """
    topic = create_topic(kafka, 2)
    orders = [(1, 1, "a", 2.5), (2, 7, "b", 1.0), (1, 1, "a", 4.5), (3, 1, "a", 0.0)]
    produce(
        kafka, topic, [*(order(*order_fields) for order_fields in orders), Put(b"{", millis(1), 0)]
    )
    user = User(kafka, topic, tmp_path)
    pages = blocks("python", PAGE + (ROOT / "docs" / "dataframes.md").read_text())
    for file, holds in (
        ("enrich.py", "def with_language"),
        ("orders.py", "class Order"),
        ("newest.py", "def newest"),
    ):
        (tmp_path / file).write_text(next(code for code in pages if holds in code))
    (tmp_path / "password").write_text("not asked for")
    spec = next(code for code in blocks("yaml", PAGE) if "newest.py" in code)
    for old, new in {
        "kafka:9092": kafka,
        "topic: orders": f"topic: {topic}",
        "postgresql://reader@db/shops": database,
        "/run/secrets/shops": str(tmp_path / "password"),
    }.items():
        assert spec.count(old) == 1
        spec = spec.replace(old, new)
    (tmp_path / "things.yaml").write_text(f"{spec}limits: {{max_dead_ratio: 1.0}}\n")
    customers(tmp_path, ["Ann", "Bob"])
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE shops (id text, city text)")
        connection.execute("INSERT INTO shops VALUES ('a', 'Kyiv'), ('b', 'Lviv')")
    return user


def customers(folder: Path, names: list[str]) -> None:
    table = pa.table({"id": pa.array([1, 2]), "name": names})
    write_deltalake(folder / "lake" / "customers", table, mode="overwrite")


def rows(folder: Path, name: str = "orders") -> list[tuple[object, ...]]:
    """Returns the table's rows: id, cents, and the columns that other steps added."""
    names = ["id", "cents", "language", "customer_name", "city"]
    table = DeltaTable(folder / "lake" / name).to_pyarrow_table()
    return sorted(tuple(row[name] for name in names) for row in table.to_pylist())


def all_steps(user: User, run: Callable[[], Any]) -> None:
    """Asserts that each row passes each step once, and that the receipt has all steps' numbers.

    A replay gives the same rows, although the looked-up table has changed.
    """
    run()
    assert rows(user.folder) == [(1, 450, *KYIV), (2, 100, *LVIV)]
    receipt = user.types("show")["windows"][0]["receipt"]
    counts = [receipt["counts"][c] for c in ("read", "valid", "filtered", "dead", "rows")]
    assert counts == [5, 2, 2, 1, 2]
    assert [(pin["lookup"], pin["version"][:2]) for pin in receipt["pins"]] == [
        ("customers", "0@"),
        ("shops", ""),
    ]
    lookup_counts = [
        lookup_count for split in receipt["splits"] for lookup_count in split["lookups"]
    ]
    hits = Counter[str]()
    for lookup_count in lookup_counts:
        hits[lookup_count["lookup"]] += lookup_count["hits"]
    assert hits == {"customers": 1, "shops": 2}
    assert sum(f["misses"] for f in lookup_counts) == 1
    customers(user.folder, ["Eve", "Eve"])
    user.types("replay", "--window", WINDOW)
    assert rows(user.folder) == [(1, 450, *KYIV), (2, 100, *LVIV)]
    (finding,) = user.types("verify", "--deep")["findings"]
    assert "rest on answers of postgresql://" in finding["what"]


def without_spark(user: User, run: Callable[[], Any]) -> None:
    """Asserts that the steps without `spark` run in ordinary tasks, into a table of their own."""
    spec = user.folder / "things.yaml"
    text = spec.read_text().replace(f"{SPARK}\n", "").replace("lake/orders", "lake/all")
    spec.write_text(text.replace("id: orders\n", "id: all\n"))
    run()
    first = ("de", "Eve", "Kyiv")
    assert rows(user.folder, "all") == [(1, 250, *first), (1, 450, *first), (2, 100, *LVIV)]


@pytest.mark.usefixtures("spark")
def test_here(user: User) -> None:
    """The command runs all steps with tasks on this machine.

    A row that is refused after the `spark` step fails the window. The error has the message's
    partition and offset.
    """
    all_steps(user, lambda: user.types("run", "--window", WINDOW))
    spec, bad = (
        user.folder / "things.yaml",
        "    - sql: SELECT *, CAST(city AS INT) AS n FROM rows\n",
    )
    spec.write_text(spec.read_text().replace("sink:", f"{bad}sink:"))
    refused = user.types("replay", "--window", WINDOW, code=1)["error"]
    assert "function of the spark step gave is refused: sql:n: Conversion Error" in str(refused)
    assert (refused["partition"], refused["offset"]) == (0, 0)
    assert rows(user.folder) == [(1, 450, *KYIV), (2, 100, *LVIV)]


@pytest.mark.long
def test_by_a_connect_server(user: User, spark_server: str) -> None:
    """The steps run on a Connect server, also without the `spark` step."""
    run = lambda: user.types("run", "--window", WINDOW, "--connect", spark_server)  # noqa: E731
    all_steps(user, run)
    without_spark(user, run)


@pytest.mark.long
def test_on_a_cluster(user: User, tmp_path: Path) -> None:
    """The steps run on a cluster whose workers have neither windrow's code nor the spec's files."""
    with cluster(tmp_path / "cluster", workers=1) as bare:
        run = lambda: user.starts_and_ends(  # noqa: E731
            "run", "--window", WINDOW, "--master", bare.master, *ON_IT
        )
        all_steps(user, run)
        without_spark(user, run)
