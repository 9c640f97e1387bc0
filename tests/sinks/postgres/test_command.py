"""A pipeline whose spec names PostgreSQL runs by the command as it is, and its mistakes
are told like any other.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Stage, hour, stage

__all__ = ["stage"]

pytestmark = pytest.mark.slow  # starts a server


@pytest.fixture
def pipeline(stage: Stage, database: str) -> Stage:
    spec = Path(stage.spec)
    sink = f"sink: {{kind: postgres, url: '{database}', table: things, staging: lake/staged}}"
    spec.write_text(spec.read_text().replace("sink: {path: lake/things}", sink))
    return stage


def test_a_pipeline_runs_on_it(pipeline: Stage, database: str) -> None:
    """Doctor, run, replay, show, dead letters, verify with everything read back, and sweep."""
    assert (
        next(
            c
            for c in pipeline.json("doctor", pipeline.spec, code=0)["checks"]
            if c["name"] == "sink"
        )["level"]
        == "ok"
    )
    assert (
        pipeline.json("run", pipeline.spec, "--window", hour(0))["windows"][0]["committed"][
            "receipt"
        ]["counts"]["valid"]
        == 4
    )
    assert (
        pipeline.json("run", pipeline.spec, "--window", hour(0))["windows"][0]["recovered"] is True
    )
    pipeline.json("replay", pipeline.spec, "--window", hour(0))
    (shown,) = pipeline.json("show", pipeline.spec)["windows"]
    assert shown["receipt"]["generation"] == 1
    assert [
        letter["reason"] for letter in pipeline.json("dead", "show", pipeline.spec)["dead"]
    ] == ["not_json"]
    assert pipeline.json("verify", pipeline.spec, "--deep")["findings"] == []
    assert pipeline.json("sweep", pipeline.spec)["files"] == []
    assert (
        next(
            c
            for c in pipeline.json("doctor", pipeline.spec, code=0)["checks"]
            if c["name"] == "sink"
        )["level"]
        == "ok"
    )
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM things").fetchone() == (4,)
    assert [p for p in (Path(pipeline.spec).parent / "lake/staged").rglob("*") if p.is_file()] == []


@pytest.mark.parametrize(
    ("sink", "says"),
    [
        (
            "kind: postgres, url: 'mysql://h/db', table: t",
            "sink.url: must begin with postgresql://",
        ),
        (
            "kind: postgres, url: 'postgresql://h', table: t",
            "sink.url: must name the host and the database",
        ),
        (
            "kind: postgres, url: 'postgresql://me:p@ss@h/db', table: t",
            "sink.url: has an @ too many",
        ),
        ("kind: postgres, url: 'postgresql://h/db#x', table: t", "sink.url: holds a #"),
        (
            "kind: postgres, url: 'postgresql://h/db', table: a.b.c",
            "sink.table: must be schema.table",
        ),
        (f"kind: postgres, url: 'postgresql://h/db', table: {'t' * 59}", "sink.table: the name"),
        (
            "kind: postgres, url: 'postgresql://h/db', table: t, windrow_schema: pg_x",
            "sink.windrow_schema: must not begin with pg_",
        ),
        (
            "kind: postgres, url: 'postgresql://h/db', table: t, path: lake",
            "sink.path: unknown key",
        ),
        ("kind: postgres, table: t", "sink.url: is missing"),
        ("kind: postgres, url: 'postgresql://h/db', table: t", "sink.staging: is missing"),
        (
            "kind: postgres, url: 'postgresql://h/db', table: t, staging: 's3://me:p@ss@b/s'",
            "sink.staging: must not hold",
        ),
        (
            "kind: postgres, url: 'postgresql://h/db?sslmod=x', table: t, staging: s",
            "has an option that libpq doesn't know",
        ),
    ],
)
def test_its_mistakes_are_told_like_any_other(stage: Stage, sink: str, says: str) -> None:
    """Each wrong option is named with what it takes; nothing of a URL is repeated."""
    spec = Path(stage.spec)
    spec.write_text(spec.read_text().replace("sink: {path: lake/things}", f"sink: {{{sink}}}"))
    message = stage.json("show", stage.spec, code=2)["error"]["message"]
    assert says in message
    assert "p@ss" not in message
