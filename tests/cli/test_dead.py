"""`windrow dead`: dead letters on the screen and in a file."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.cli.conftest import Stage, hour
from windrow.ingest.cli import dead
from windrow.ingest.sinks.kit.columns.table_columns import DEAD_LETTERS

RANGE = f"{hour(0)}/{hour(6)}"


@pytest.fixture
def refused(stage: Stage) -> Stage:
    """A pipeline with six committed hours, three of them with dead letters.

    Two hours have a message that is not JSON, and one hour has two messages with wrong types.
    """
    stage.produce(5, b'{"id": 1}', b'{"id": "7"}', b'{"id": 2}', b'{"id": 1.5}')
    stage.json("run", stage.spec, "--window", RANGE)
    return stage


def places(document: Any) -> list[tuple[str, int, int]]:
    """Returns window, partition and offset of the shown dead letters."""
    return [(d["window"], d["partition"], d["offset"]) for d in document["dead"]]


@pytest.mark.some(2)
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
    """Dead letters can be chosen by window, stage and reason, for the screen and for a file."""
    assert len(refused.json("dead", "show", refused.spec, *arguments)["dead"]) == count
    file = refused.folder / "dead.jsonl"
    assert (
        refused.json("dead", "show", refused.spec, "--out", str(file), *arguments)["dead"] == count
    )
    assert len(file.read_text().splitlines()) == count


def test_none_of_a_kind(refused: Stage) -> None:
    """If no dead letter matches, the message repeats what was asked for."""
    text = refused.call(
        "dead", "show", refused.spec, "--stage", "key", "--reason", "x", "--window", hour(1)
    ).stdout
    assert f"There are no dead letters of stage key with reason x in {hour(1)}." in text


@pytest.mark.parametrize("command", [("show",), ("show", "--out", "dead.jsonl"), ("replay",)])
def test_a_stage_that_there_is_not(refused: Stage, command: tuple[str, ...]) -> None:
    """An unknown stage is refused, and the message lists the stages."""
    verb, *more = command
    error = refused.json("dead", verb, refused.spec, *more, "--stage", "vlaue", code=2)["error"][
        "message"
    ]
    assert "There is no stage 'vlaue' of dead letters" in error
    assert "Name one of key, header, value, schema, rules." in error


def test_a_limit_counts_what_is_asked_for(refused: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit counts only dead letters that match; the default is twenty, like for `peek`.

    All are counted by reason. Of committed windows, no more letters are read than are shown.
    """
    shown = refused.json("dead", "show", refused.spec, "--stage", "schema", "--limit", "2")
    assert (places(shown), shown["left_out"]) == ([(hour(5), 1, 5), (hour(5), 1, 6)], False)
    assert (
        refused.json("dead", "show", refused.spec, "--stage", "schema", "--limit", "1")["left_out"]
        is True
    )
    refused.produce(7, *[b"poison"] * 21)
    refused.json("run", refused.spec, "--window", hour(7), code=1)
    shown = refused.json("dead", "show", refused.spec, "--window", hour(7))
    assert (len(shown["dead"]), shown["left_out"]) == (20, True)
    assert shown["reasons"] == {"not_json": 21}
    arguments = ("dead", "show", refused.spec, "--limit", "1")
    read, really = list[str](), dead.dead_letters_of

    def noted(store: Any, window: Any, attempt: str) -> Any:
        read.append(window.key)
        return really(store, window, attempt)

    monkeypatch.setattr(dead, "dead_letters_of", noted)
    assert refused.json(*arguments)["reasons"] == {"not_json": 2, "wrong_type": 2}
    assert read == [hour(0), hour(1)], "there may be thousands behind them"
    assert refused.json(*arguments, "--reason", "wrong_type")["reasons"] == {"wrong_type": 2}
    assert refused.json(*arguments, "--stage", "value")["reasons"] == {"not_json": 2}
    output = refused.call(*arguments).stdout
    assert "\n2 not_json, 2 wrong_type\n" in output


def test_an_exported_parquet_file(refused: Stage) -> None:
    """A Parquet file has the columns of dead letters; the payload's only with --payload."""
    file = refused.folder / "dead.parquet"
    for payload, names in (
        (("--payload",), DEAD_LETTERS.names),
        ((), [n for n in DEAD_LETTERS.names if n not in {"key", "value", "headers"}]),
    ):
        refused.json("dead", "show", refused.spec, "--out", str(file), *payload)
        table = pq.read_table(file)
        assert table.schema.names == names
        assert table["_offset"].to_pylist() == [2, 5, 5, 6]
        assert table["_window"].to_pylist() == [hour(0), hour(1), hour(5), hour(5)]
    assert b"secret" not in file.read_bytes()


def test_an_exported_jsonl_file(refused: Stage) -> None:
    """A JSON Lines file has one document per line, with ISO instants and bytes as text.

    Without --payload it has no payload.
    """
    file = refused.folder / "dead.jsonl"
    refused.json("dead", "show", refused.spec, "--out", str(file), "--payload", "--window", hour(1))
    (letter,) = map(json.loads, file.read_text().splitlines())
    assert (letter["key"], letter["value"], letter["headers"]) == (
        "secret-key",
        "secret-poison",
        [],
    )
    assert (letter["_timestamp"], letter["_window"], letter["stage"]) == (
        "2026-01-05T01:00:04.000Z",
        hour(1),
        "value",
    )
    refused.json("dead", "show", refused.spec, "--out", str(file), "--window", hour(1))
    assert "secret" not in file.read_text()


def test_the_schema_that_a_message_named(stage: Stage) -> None:
    """With a registry's format, the schema id of a message is shown, written, and given
    to scripts.
    """
    spec = stage.folder / "things.yaml"
    spec.write_text(
        spec.read_text().replace(
            '{schema: "schema.py:Thing"}',
            '{format: json-schema-confluent, schema: "schema.py:Thing"}',
        )
    )
    stage.produce(7, b"\x00\x00\x00\x00\x07{}", b"secret", b'\x00\x00\x00\x00\x07{"id": 1}')
    spec.write_text(spec.read_text().replace("0.6", "1"))
    stage.json("run", stage.spec, "--window", hour(7))
    shown = stage.json("dead", "show", stage.spec)["dead"]
    assert [(d["reason"], d.get("schema_id")) for d in shown] == [
        ("missing", "7"),
        ("no_schema_id", None),
    ]
    assert "schema" in stage.call("dead", "show", stage.spec).stdout
    file = stage.folder / "dead.jsonl"
    stage.json("dead", "show", stage.spec, "--out", str(file))
    assert [json.loads(line)["schema_id"] for line in file.read_text().splitlines()] == ["7", None]
    script = stage.folder / "fix.py"
    script.write_text(
        EDIT.replace('message.stage == "value"', "message.schema_id == '7'").replace(
            "{", "\\x00" * 4 + "\\x07{"
        )
    )
    (done,) = stage.json("dead", "replay", stage.spec, "--window", hour(7), "--edit", str(script))[
        "windows"
    ]
    assert (done["tried"], done["messages"]) == (1, 1)
    assert [d.get("schema_id") for d in stage.json("dead", "show", stage.spec)["dead"]] == [None]


def test_an_export_of_a_refused_window(stage: Stage) -> None:
    """For a window that isn't committed, the newest attempt's letters are written, with a note."""
    spec = stage.folder / "things.yaml"
    spec.write_text(spec.read_text().replace("ratio: 0.6", "ratio: 0"))
    stage.json("run", stage.spec, "--window", hour(0), code=1)
    file = stage.folder / "dead.jsonl"
    document = stage.json("dead", "show", stage.spec, "--out", str(file), "--window", hour(0))
    assert (document["dead"], [r["window"] for r in document["refused"]]) == (1, [hour(0)])
    assert (
        "is not committed; these are of its newest attempt"
        in stage.call("dead", "show", stage.spec, "--out", str(file), "--window", hour(0)).stdout
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [("dead.csv", "neither a .parquet nor a .jsonl"), ("no/dead.jsonl", "There is no folder")],
)
def test_a_file_that_cannot_be(refused: Stage, name: str, says: str) -> None:
    """An unknown ending of a file, or a missing folder, is a usage error."""
    assert (
        says
        in refused.json("dead", "show", refused.spec, "--out", str(refused.folder / name), code=2)[
            "error"
        ]["message"]
    )


def test_an_attempt_goes_with_its_window(refused: Stage) -> None:
    """`--attempt` needs `--window`."""
    for command in (("show",), ("show", "--out", "x.jsonl")):
        assert (
            refused.call("dead", command[0], refused.spec, "--attempt", "a", *command[1:]).exit_code
            == 2
        )


# --------------------------------------------------------------------------------------------------

EDIT = """\
from dataclasses import replace


def edit(message):
    edited = replace(message, value=b'{"id": %d}' % (100 + message.offset))
    return edited if message.stage == "value" else None
"""


def rows(stage: Stage) -> dict[tuple[str, int, int], int]:
    """Returns the ids in the table, by window, partition and offset."""
    table = DeltaTable(stage.folder / "lake" / "things").to_pyarrow_table()
    columns = [table[c].to_pylist() for c in ("_window", "_partition", "_offset", "id")]
    return {
        (window, partition, offset): number
        for window, partition, offset, number in zip(*columns, strict=True)
    }


def widen(stage: Stage) -> None:
    """Makes the spec accept whole numbers that are written as text."""
    spec = stage.folder / "things.yaml"
    spec.write_text(
        spec.read_text().replace(
            '{schema: "schema.py:Thing"}', '{schema: "schema.py:Thing", coerce: lenient}'
        )
    )


def test_a_corrected_schema_accepts_dead_letters(refused: Stage) -> None:
    """A dead letter that the corrected schema accepts becomes a row of its own window.

    Others stay as they were, and the command says why. A dry run writes nothing.
    """
    rows_before = rows(refused)
    widen(refused)
    dry = refused.json("dead", "replay", refused.spec, "--reason", "wrong_type", "--dry-run")
    assert ([w["messages"] for w in dry["windows"]], dry["dry_run"], rows(refused)) == (
        [1],
        True,
        rows_before,
    )
    assert (
        "Nothing was written (--dry-run)."
        in refused.call("dead", "replay", refused.spec, "--stage", "schema", "--dry-run").stdout
    )
    (done,) = refused.json("dead", "replay", refused.spec, "--reason", "wrong_type")["windows"]
    assert (done["window"], done["open"], done["tried"], done["messages"], done["edited"]) == (
        hour(5),
        2,
        2,
        1,
        0,
    )
    assert rows(refused) == rows_before | {(hour(5), 1, 5): 7}
    assert places(refused.json("dead", "show", refused.spec)) == [
        (hour(0), 0, 2),
        (hour(1), 0, 5),
        (hour(5), 1, 6),
    ]
    text = refused.call("dead", "replay", refused.spec, "--reason", "wrong_type").stdout
    assert (
        f"{hour(5)}: 1 refused again at stage schema: $.id expected a whole number of 64 bits (1)"
        in text
    )
    assert refused.json("verify", refused.spec, "--deep")["findings"] == []
    assert "dead replayed" in refused.call("show", refused.spec).stdout


def test_a_script_repairs(refused: Stage) -> None:
    """A script's function repairs dead letters, and no payload is printed."""
    script = refused.folder / "fix.py"
    script.write_text(EDIT)
    result = refused.call("dead", "replay", refused.spec, "--window", RANGE, "--edit", str(script))
    assert (result.exit_code, "secret" in result.output) == (0, False)
    rows_after = rows(refused)
    assert (rows_after[hour(0), 0, 2], rows_after[hour(1), 0, 5]) == (102, 105)
    assert places(refused.json("dead", "show", refused.spec)) == [(hour(5), 1, 5), (hour(5), 1, 6)]
    error = refused.json("replay", refused.spec, "--window", hour(0), code=1)["error"]["message"]
    assert "holds 1 message edited for a dead-letter replay" in error
    going = refused.json("replay", refused.spec, "--window", RANGE, "--keep-going", code=1)
    assert going["error"]["message"].startswith(f"2 of 6 windows refused: {hour(0)}, {hour(1)}.")
    assert [w["committed"]["receipt"]["generation"] for w in going["windows"]] == [1] * 4
    assert (
        refused.json("replay", refused.spec, "--window", hour(0), "--accept-fewer")["windows"][0][
            "committed"
        ]["receipt"]["generation"]
        == 2
    )
    assert places(refused.json("dead", "show", refused.spec, "--window", hour(0))) == [
        (hour(0), 0, 2)
    ]


def test_a_script_that_fails(refused: Stage) -> None:
    """A script that fails is reported with its line and the message's place, without its text.

    The text may quote a payload. Earlier windows stay committed.
    """
    script = refused.folder / "fix.py"
    script.write_text(
        EDIT.replace("    return", "    assert message.offset < 3, message.value\n    return")
    )
    document = refused.json(
        "dead", "replay", refused.spec, "--stage", "value", "--edit", str(script), code=2
    )
    assert [w["window"] for w in document["windows"]] == [hour(0)]
    assert (
        f"edit failed: AssertionError at {script}:6 (decode, shop.things[0]@5)"
        in document["error"]["message"]
    )
    assert "secret" not in str(document)
    assert (hour(0), 0, 2) in rows(refused)
    second_replay = refused.call(
        "dead", "replay", refused.spec, "--window", hour(1), "--edit", str(script)
    )
    assert (second_replay.exit_code, second_replay.stdout) == (2, "")


def test_what_cannot_be_replayed(refused: Stage) -> None:
    """A window that isn't committed, and a command without a choice, are refused and
    write nothing.
    """
    error = refused.json("dead", "replay", refused.spec, "--window", hour(7), code=1)["error"][
        "message"
    ]
    assert "isn't committed, so it has no dead letters to replay" in error
    arguments = ("dead", "replay", refused.spec, "--window", f"{hour(5)}/{hour(8)}")
    assert refused.json(*arguments, code=1)["error"]["message"].endswith(f" Not tried: {hour(7)}.")
    going = refused.json(*arguments, "--keep-going", code=1)
    assert [w["window"] for w in going["windows"]] == [hour(5)]
    assert going["error"]["message"].startswith(f"2 of 3 windows refused: {hour(6)}, {hour(7)}.")
    assert refused.call("dead", "replay", refused.spec).exit_code == 2
    assert (
        refused.call("dead", "replay", refused.spec, "--stage", "key").stdout.startswith(
            f"{hour(0)}"
        )
        is False
    )
    assert (
        "There are no dead letters with reason x."
        in refused.call("dead", "replay", refused.spec, "--reason", "x").stdout
    )


# --------------------------------------------------------------------------------------------------


def test_letters_of_windows_from_before_there_was_a_topic(refused: Stage) -> None:
    """Dead letters from before the spec had a topic for them are reported by verification.

    Running each window, as advised, publishes them once.
    """
    spec = refused.folder / "things.yaml"
    spec.write_text(spec.read_text() + "dead_letters: {topic: things.dead}\n")
    findings = refused.json("verify", refused.spec, code=1)["findings"]
    assert [f["window"] for f in findings] == [hour(0), hour(1), hour(5)]
    assert {f["what"] for f in findings} == {
        "its dead letters are not known to be in the topic things.dead"
    }
    for finding in findings:
        assert finding["do"] == f"windrow run SPEC --window {finding['window']} publishes them."
        refused.call("run", refused.spec, "--window", finding["window"])
    assert len(refused.dead_topic.letters) == 4
    assert refused.json("verify", refused.spec)["findings"] == []


def test_a_run_says_what_it_published(stage: Stage) -> None:
    """`run` prints how many dead letters of each window were published, and to which topic."""
    spec = stage.folder / "things.yaml"
    spec.write_text(spec.read_text() + "dead_letters: {topic: things.dead}\n")
    assert (
        f"{hour(0)}: 1 dead letter published to things.dead."
        in stage.call("run", stage.spec, "--window", hour(0)).stdout
    )
    document = stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(3)}")
    assert [w.get("published_dead") for w in document["windows"]] == [
        None,
        {"topic": "things.dead", "dead_letters": 1},
        None,
    ]
