"""`windrow pause` and `windrow resume`: no window begins between them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cli.conftest import Stage, hour
from windrow.ingest.ledger.sql import SqlLedger
from windrow.ingest.model.ledger_records import Pause

WHY = ("--why", "the broker moves")


def assert_paused(stage: Stage, *words: str) -> str:
    """Asserts that a command is refused because of the pause, and returns its message."""
    error = stage.json(*words, code=1)["error"]
    assert error["kind"] == "PausedError"
    return str(error["message"])


def test_nothing_is_committed_until_resumed(stage: Stage) -> None:
    """Every command that commits is refused, with who paused, since when and why.

    Nothing is frozen. With `--anyway` the command runs. After `resume` all commands run.
    """
    run = ("run", stage.spec, "--window", hour(0))
    assert stage.json("pause", stage.spec, *WHY, "--who", "ann")["recorded"] is True
    message = assert_paused(stage, *run)
    assert (
        "Pipeline things is paused by ann since 2026-01-06T00:00:00Z: the broker moves" in message
    )
    assert f"windrow resume {stage.spec}" in message
    with closing(sqlite3.connect(stage.folder / ".windrow/state.db")) as ledger:
        kinds = ledger.execute("SELECT DISTINCT kind FROM windrow_ledger_2 ORDER BY 1").fetchall()
    assert kinds == [("pause",)]
    assert stage.json(*run, "--anyway")["windows"]
    assert assert_paused(stage, *run), "it is committed, and reporting it would publish, too"
    window = ("--window", hour(0))
    assert_paused(stage, "replay", stage.spec, *window)
    assert_paused(stage, "dead", "replay", stage.spec, *window)
    assert stage.json("dead", "replay", stage.spec, *window, "--dry-run")["windows"]
    assert stage.json("dead", "replay", stage.spec, *window, "--anyway")["windows"]
    assert stage.json("replay", stage.spec, *window, "--anyway")["windows"]
    assert stage.json("lag", stage.spec)["paused"]["who"] == "ann"
    assert stage.json("plan", stage.spec, *window)["paused"]["who"] == "ann"
    assert "things is paused by ann" in stage.call("plan", stage.spec, *window).stdout
    assert "things is paused by ann" in stage.call("lag", stage.spec).stdout
    (state,) = (c for c in stage.json("doctor", stage.spec)["checks"] if c["name"] == "state")
    assert state["level"] == "warn"
    assert "paused by ann" in state["what"]
    done = stage.json("resume", stage.spec, "--why", "it has moved", "--who", "bob")
    assert (done["pause"]["number"], done["pause"]["paused"]) == (1, False)
    assert stage.json(*run)["windows"][0]["recovered"] is True
    assert stage.json("lag", stage.spec)["paused"] is None


def test_micro_batches_stop_before_the_next_is_cut(stage: Stage) -> None:
    """A paused pipeline makes no batch; a drain ends after the current batch."""
    stage.write(window="grid: batch, max_records: 4")
    stage.json("pause", stage.spec, *WHY)
    assert_paused(stage, "run", stage.spec, "--drain")
    stage.json("resume", stage.spec)
    record, committed = SqlLedger.record, list[str]()

    def then_pause(ledger: SqlLedger, receipt: object, *more: object) -> None:
        record(ledger, receipt, *more)  # type: ignore[arg-type]
        committed.append("")
        ledger.put_pause("things", Pause(2, True, "ann", "", stage.now))

    with patch.object(SqlLedger, "record", then_pause):
        document = stage.json("run", stage.spec, "--drain", code=1)
    assert (len(document["windows"]), document["error"]["kind"]) == (1, "PausedError")
    stage.json("resume", stage.spec)
    assert [w["recovered"] for w in stage.json("run", stage.spec, "--drain")["windows"]] == [
        False,
        False,
    ]
    assert stage.json("verify", stage.spec)["findings"] == []


def test_a_rebuilt_ledger_is_not_paused_and_says_so(stage: Stage) -> None:
    """A rebuilt ledger isn't paused, and the command says so; an existing ledger keeps
    its pause.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    stage.json("pause", stage.spec, *WHY)
    assert stage.json("doctor", stage.spec, "--rebuild-ledger")["notes"] == []
    assert_paused(stage, "run", stage.spec, "--window", hour(1))
    (stage.folder / ".windrow/state.db").unlink()
    output = stage.call("doctor", stage.spec, "--rebuild-ledger").stdout
    assert "No receipt says whether the pipeline was paused: it isn't now." in output
    assert f"windrow pause {stage.spec}" in output
    assert stage.json("run", stage.spec, "--window", hour(1))["windows"]


def test_two_persons_at_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two records at the same moment one counts, and the other user is told."""
    rival_pause = Pause(0, True, "bob", "", stage.now)
    put_pause = SqlLedger.put_pause

    def first(ledger: SqlLedger, name: str, pause: Pause) -> Pause:
        put_pause(ledger, name, rival_pause)
        return put_pause(ledger, name, pause)

    monkeypatch.setattr(SqlLedger, "put_pause", first)
    message = stage.json("pause", stage.spec, *WHY, "--who", "ann", code=1)["error"]["message"]
    assert "Meanwhile somebody else was here: pipeline things is paused by bob since" in message


def test_what_is_typed(stage: Stage) -> None:
    """A pause needs a reason of one line; a second pause replaces the first one, and says so.

    A pipeline that isn't paused can be resumed without an error.
    """
    assert stage.call("pause", stage.spec).exit_code == 2
    for bad_reason in ("two\nlines", "x" * 501, "\udcff", "\x1b[31mred"):
        message = stage.json("pause", stage.spec, "--why", bad_reason, code=2)["error"]["message"]
        assert "--why can't be shown in messages" in message
    assert not Path(".windrow").exists()
    assert stage.json("resume", stage.spec) == {
        "pipeline": "things",
        "pause": None,
        "recorded": False,
        "replaced": None,
    }
    assert "things isn't paused." in stage.call("resume", stage.spec).stdout
    for reason in ("[red]über[/red]", "", "'); DROP TABLE x; --"):
        assert stage.json("pause", stage.spec, "--why", reason)["pause"]["why"] == reason
    assert stage.json("pause", stage.spec, *WHY, "--who", "ann")["replaced"]["why"] == reason
    output = stage.call("pause", stage.spec, "--why", "[bold]").stdout
    assert "things is paused by" in output
    assert (
        "This takes the place of an earlier pause: things is paused by ann since 2026-01-06"
        in output
    )
    assert "00:00:00Z: the broker moves." in output
    resumed = stage.json("resume", stage.spec)
    assert (resumed["pause"]["number"], resumed["replaced"]["why"]) == (5, "[bold]")
    second_resume = stage.json("resume", stage.spec)
    assert (second_resume["pause"], second_resume["recorded"]) == (resumed["pause"], False)
    assert stage.json("pause", stage.spec, *WHY, "--who", "ann")["replaced"] is None
    output = stage.call("resume", stage.spec).stdout
    assert "This ended the pause: things is paused by ann since 2026-01-06" in output
