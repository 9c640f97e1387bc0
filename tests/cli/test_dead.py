"""`windrow dead`: what was refused, on the screen and in a file."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from ingest.sinks.columns import DEAD_LETTERS
from tests.cli.conftest import Stage, hour

RANGE = f"{hour(0)}/{hour(6)}"


@pytest.fixture
def refused(stage: Stage) -> Stage:
    """Six committed hours: two with a message that is no JSON, one with two of other types."""
    stage.produce(5, b'{"id": 1}', b'{"id": "one"}', b'{"id": 2}', b'{"id": 1.5}')
    stage.json("run", stage.spec, "--window", RANGE)
    return stage


def places(document: Any) -> list[tuple[str, int, int]]:
    """Window, partition and offset of what was shown."""
    return [(d["window"], d["partition"], d["offset"]) for d in document["dead"]]


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ((), 4),
        (("--stage", "value"), 2),
        (("--stage", "schema"), 2),
        (("--reason", "not_json"), 2),
        (("--reason", "not_json", "--stage", "schema"), 0),
        (("--reason", "not_json", "--window", hour(1)), 1),
        (("--reason", "no such reason"), 0),
    ],
)
def test_some_of_them(refused: Stage, arguments: tuple[str, ...], count: int) -> None:
    """By window, stage and reason, on the screen and in a file alike."""
    assert len(refused.json("dead", "show", refused.spec, *arguments)["dead"]) == count
    file = refused.folder / "dead.jsonl"
    assert refused.json("dead", "export", refused.spec, "--out", str(file), *arguments)["dead"] == count
    assert len(file.read_text().splitlines()) == count


def test_none_of_a_kind(refused: Stage) -> None:
    """Who asks for a kind that there is none of hears which."""
    text = refused.call("dead", "show", refused.spec, "--stage", "key", "--reason", "x", "--window", hour(1)).stdout
    assert f"There are no dead letters of stage key with reason x in {hour(1)}." in text


def test_a_limit_counts_what_is_asked_for(refused: Stage) -> None:
    """The limit is for those of the stage, not for those that were passed over."""
    shown = refused.json("dead", "show", refused.spec, "--stage", "schema", "--limit", "2")
    assert (places(shown), shown["left_out"]) == ([(hour(5), 1, 5), (hour(5), 1, 6)], False)


def test_an_exported_parquet_file(refused: Stage) -> None:
    """Has the columns of dead letters; those that hold what was sent only if that is asked for."""
    file = refused.folder / "dead.parquet"
    for payload, names in (
        (("--payload",), DEAD_LETTERS.names),
        ((), [n for n in DEAD_LETTERS.names if n not in {"key", "value", "headers"}]),
    ):
        refused.json("dead", "export", refused.spec, "--out", str(file), *payload)
        table = pq.read_table(file)
        assert table.schema.names == names
        assert table["_offset"].to_pylist() == [2, 5, 5, 6]
        assert table["_window"].to_pylist() == [hour(0), hour(1), hour(5), hour(5)]
    assert b"secret" not in file.read_bytes()


def test_an_exported_jsonl_file(refused: Stage) -> None:
    """A document a line: instants in ISO's form, bytes as text; without payload none of it."""
    file = refused.folder / "dead.jsonl"
    refused.json("dead", "export", refused.spec, "--out", str(file), "--payload", "--window", hour(1))
    (letter,) = map(json.loads, file.read_text().splitlines())
    assert (letter["key"], letter["value"], letter["headers"]) == ("secret-key", "secret-poison", [])
    assert (letter["_timestamp"], letter["_window"], letter["stage"]) == ("2026-01-05T01:00:04.000Z", hour(1), "value")
    refused.json("dead", "export", refused.spec, "--out", str(file), "--window", hour(1))
    assert "secret" not in file.read_text()


def test_an_export_of_a_refused_window(stage: Stage) -> None:
    """Of a window that isn't committed the newest attempt's are written, and the command says so."""
    spec = stage.folder / "things.yaml"
    spec.write_text(spec.read_text().replace("0.6", "0.1"))
    stage.json("run", stage.spec, "--window", hour(0), code=1)
    file = stage.folder / "dead.jsonl"
    found = stage.json("dead", "export", stage.spec, "--out", str(file), "--window", hour(0))
    assert (found["dead"], [r["window"] for r in found["refused"]]) == (1, [hour(0)])
    assert "is not committed; these are of its newest attempt" in stage.call(
        "dead", "export", stage.spec, "--out", str(file), "--window", hour(0)
    ).stdout  # fmt: skip


@pytest.mark.parametrize(("name", "says"), [("dead.csv", "neither a .parquet nor a .jsonl"), ("no/dead.jsonl", "There is no folder")])
def test_a_file_that_cannot_be(refused: Stage, name: str, says: str) -> None:
    """An ending that says no form, or a folder that isn't there, is the caller's mistake."""
    assert says in refused.json("dead", "export", refused.spec, "--out", str(refused.folder / name), code=2)["error"]["message"]


def test_an_attempt_goes_with_its_window(refused: Stage) -> None:
    """An attempt is one at a window: without that the command doesn't guess."""
    for command in (("show",), ("export", "--out", "x.jsonl")):
        assert refused.call("dead", command[0], refused.spec, "--attempt", "a", *command[1:]).exit_code == 2
