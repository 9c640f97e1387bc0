"""The command on pipelines with each kind of sink except Kafka."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Stage, hour, stage

__all__ = ["stage"]

pytestmark = pytest.mark.slow  # tables on disk, and servers

SINKS = {
    "delta": "{path: lake/things}",
    "parquet": "{kind: files, path: lake/things}",
    "jsonl": "{kind: files, path: lake/things, format: jsonl}",
    "csv": "{kind: files, path: lake/things, format: csv, compression: none}",
    "iceberg": "{kind: iceberg, warehouse: lake, table: shop.things}",
    "iceberg-keyed": (
        "{kind: iceberg, warehouse: lake, table: shop.things, mode: upsert, primary_key: [id],"
        " buckets: 2}"
    ),
    "postgres": "{kind: postgres, url: 'DATABASE', table: things, staging: lake/staged}",
    "sqlite": "{kind: sqlite, path: orders.sqlite, table: orders}",
    "routes": (
        "{kind: routes, by: column, name: id, tables: [{values: ['1'], sink: {path: lake/first}},"
        " {pattern: '[23]', sink: {path: lake/second}}], other: {path: lake/things}}"
    ),
}


def level(stage: Stage) -> str:
    """Returns the level of doctor's check of the table."""
    checks = stage.json("doctor", stage.spec, code=0)["checks"]
    return str(next(check["level"] for check in checks if check["name"] == "sink"))


@pytest.mark.parametrize("kind", SINKS)
def test_a_pipeline_runs_on_it(stage: Stage, request: pytest.FixtureRequest, kind: str) -> None:
    """doctor, run, replay, show, dead letters, verify --deep and sweep work on each kind.

    Kinds that copy rows from staged files leave no staged file.
    """
    url = request.getfixturevalue("database") if kind == "postgres" else ""
    stage.sink(SINKS[kind].replace("DATABASE", url))
    assert level(stage) == "ok"
    for recovered in (False, True):
        (ran,) = stage.json("run", stage.spec, "--window", hour(0))["windows"]
        assert (ran["committed"]["receipt"]["counts"]["valid"], ran["recovered"]) == (4, recovered)
    stage.json("replay", stage.spec, "--window", hour(0))
    (shown,) = stage.json("show", stage.spec)["windows"]
    assert shown["receipt"]["generation"] == 1
    assert [letter["reason"] for letter in stage.json("dead", "show", stage.spec)["dead"]] == [
        "not_json"
    ]
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []
    assert stage.json("maintain", stage.spec)["maintained"]["removed_files"] == []
    assert level(stage) == "ok"
    assert not [path for path in stage.folder.rglob("*staged/**/*") if path.is_file()]


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("{kind: files, path: x, format: xml}", "must be 'parquet', 'jsonl' or 'csv'"),
        (
            "{kind: files, path: x, format: csv, compression: snappy}",
            "snappy goes with format parquet",
        ),
        ("{kind: files, path: x, mode: upsert}", "sink.mode: unknown key"),
        ("{kind: files, path: x, primary_key: [id]}", "sink.primary_key: unknown key"),
        ("{kind: files, path: 'gs://bucket/t'}", "sink.path"),
        ("{kind: files, path: 's3://user:hunter2@bucket/t'}", "sink.path"),
        ("{kind: files, path: 's3://bucket/t?key=hunter2'}", "sink.path"),
        (
            "{kind: iceberg, table: shop.things}",
            "either warehouse, a folder, or catalog must be set",
        ),
        ("{kind: iceberg, warehouse: lake}", "sink.table: is missing"),
        ("{kind: iceberg, warehouse: lake, table: things}", "sink.table: must be namespace.table"),
        (
            "{kind: iceberg, warehouse: lake, table: shop./etc}",
            "sink.table: must be namespace.table",
        ),
        (
            "{kind: iceberg, warehouse: 's3://bucket/lake', table: shop.things}",
            "sink.warehouse: must be a folder of this machine",
        ),
        (
            "{kind: iceberg, warehouse: lake, catalog: {type: rest}, table: shop.things}",
            "sink.catalog: goes without warehouse",
        ),
        ("{kind: iceberg, catalog: {}, table: shop.things}", "sink.catalog: names no property"),
        (
            "{kind: iceberg, catalog: {type: in-memory}, table: shop.things}",
            "sink.catalog: of type in-memory is gone with its process",
        ),
        (
            "{kind: iceberg, catalog: {py-io-impl: os.system}, table: shop.things}",
            "sink.catalog: py-io-impl: set by windrow itself",
        ),
        (
            (
                "{kind: iceberg, catalog: {type: rest, s3.secret-access-key: hunter2}, table:"
                " shop.things}"
            ),
            "is written out",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: [hunter2]}, table: shop.things}",
            "sink.catalog.token: must be a text",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: {value: hunter2}}, table: shop.things}",
            "or a reference: {env: NAME}",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: {env: A, file: b}}, table: shop.things}",
            "or a reference: {env: NAME}",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: {env: ''}}, table: shop.things}",
            "or a reference: {env: NAME}",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: {env: NOT_THERE}}, table: shop.things}",
            "variable NOT_THERE, which",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, token: {file: not/there}}, table: shop.things}",
            "not/there, which",
        ),
        (
            "{kind: iceberg, catalog: {type: rest, uri: {env: X}}, table: shop.things}",
            "catalog.uri is a reference",
        ),
        (
            "{kind: iceberg, warehouse: lake, table: shop.things, mode: upsert}",
            "sink.mode: upsert needs primary_key",
        ),
        ("{kind: iceberg, warehouse: lake, table: shop.things, path: x}", "sink.path: unknown key"),
        ("{kind: iceberg, warehouse: 'a%20b', table: shop.things}", "with a %, ? or # in it"),
        ("{kind: iceberg, catalog: {type: nothing}, table: shop.things}", "can't be opened"),
        (
            (
                "{kind: iceberg, catalog: {type: sql, uri: 'oracle+none://u:hunter2@h/d'}, table:"
                " shop.things}"
            ),
            "sink.catalog.uri: is a URL with a password written out",
        ),
        (
            "{kind: iceberg, catalog: {type: sql, uri: 'oracle+none://h/d'}, table: shop.things}",
            "can't be opened",
        ),
        (
            "{kind: postgres, url: 'mysql://h/db', table: t}",
            "sink.url: must begin with postgresql://",
        ),
        (
            "{kind: postgres, url: 'postgresql://h', table: t}",
            "sink.url: must name the host and the database",
        ),
        (
            "{kind: postgres, url: 'postgresql://me:hun@ter2@h/db', table: t}",
            "sink.url: has an @ too many",
        ),
        ("{kind: postgres, url: 'postgresql://h/db#x', table: t}", "sink.url: holds a #"),
        (
            "{kind: postgres, url: 'postgresql://h/db', table: a.b.c}",
            "sink.table: must be schema.table",
        ),
        (
            f"{{kind: postgres, url: 'postgresql://h/db', table: {'t' * 59}}}",
            "sink.table: the name",
        ),
        (
            "{kind: postgres, url: 'postgresql://h/db', table: t, windrow_schema: pg_x}",
            "sink.windrow_schema: must not begin with pg_",
        ),
        (
            "{kind: postgres, url: 'postgresql://h/db', table: t, path: lake}",
            "sink.path: unknown key",
        ),
        ("{kind: postgres, table: t}", "sink.url: is missing"),
        ("{kind: postgres, url: 'postgresql://h/db', table: t}", "sink.staging: is missing"),
        (
            "{kind: postgres, url: 'postgresql://h/db', table: t, staging: 's3://me:hun@ter2@b/s'}",
            "sink.staging: must not hold",
        ),
        (
            "{kind: postgres, url: 'postgresql://h/db?sslmod=x', table: t, staging: s}",
            "has an option that libpq doesn't know",
        ),
        ("{kind: sqlite, path: orders.sqlite}", "sink.table: is missing"),
        ("{kind: sqlite, path: 's3://bucket/x', table: orders}", "sink.path: must be a path"),
        (
            "{kind: sqlite, path: x, table: shop.orders}",
            "sink.table: must be letters, digits and underscores",
        ),
        (
            "{kind: sqlite, path: x, table: SQLite_orders}",
            "sink.table: must not begin with sqlite_ or windrow_",
        ),
        (
            "{kind: sqlite, path: x, table: orders, primary_key: [id]}",
            "sink.primary_key: unknown key",
        ),
    ],
)
def test_mistakes_are_told(stage: Stage, section: str, says: str) -> None:
    """Wrong options, wrong combinations and impossible values are refused with their place in
    the spec, and without secrets.

    An error within the section has its line.
    """
    stage.sink(section)
    message = stage.json("show", stage.spec, code=2)["error"]["message"]
    assert says in message
    assert "line 6: " in message or not says.startswith("sink.")
    assert "hunter2" not in message.replace("@", "")
