"""`windrow due`, and `windrow run --due`: the windows that a schedule runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.cli.conftest import SCHEMA, START, TOPIC, Stage, hour
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import UnreachableError
from windrow.ingest.ledger.sql import SqlLedger, open_ledger
from windrow.ingest.runner import due as rule
from windrow.ingest.testing.engine import LocalEngine


@pytest.fixture
def stage(stage: Stage) -> Stage:
    """A pipeline whose hours 0 to 3 are closed; hour 1 has more dead letters than its limit."""
    stage.produce(1, *[b"poison"] * 9)
    stage.now = START + timedelta(hours=4, minutes=5)
    return stage


def keys(document: Any) -> list[str]:
    return [
        window["committed"]["receipt"]["plan"]["window"]["start"] for window in document["windows"]
    ]


def hours(*numbers: int) -> list[str]:
    return [hour(n) for n in numbers]


def test_a_refused_window_is_due_again_by_hand_or_with_another_schema(stage: Stage) -> None:
    """All closed windows without a commit are due, the oldest first.

    A refused window is due again if its schema, a limit, its plan or windrow's version changed.
    After its commit it isn't listed as refused any more.
    """
    assert stage.json("due", stage.spec) == {
        "pipeline": "things",
        "windows": hours(0, 1, 2, 3),
        "refused": [],
        "older": [],
    }
    ran = stage.json("run", stage.spec, "--window", hour(3), "--due", code=1)
    assert keys(ran) == hours(0, 2, 3), "also those behind the refused one"
    assert hour(1) in ran["error"]["message"]
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(SqlLedger, "plan")  # there may be thousands of refusals
            shown = stage.json("due", stage.spec)
        assert (shown["windows"], shown["refused"]) == ([], hours(1))
    assert "No closed window is waiting." in stage.call("due", stage.spec).stdout
    assert f"refused: {hour(1)}." in stage.call("due", stage.spec).stdout
    assert keys(stage.json("run", stage.spec, "--window", hour(3), "--due")) == hours(3)

    schema = stage.folder / "schema.py"
    schema.write_text(SCHEMA + "# another\n")
    assert stage.json("due", stage.spec)["windows"] == hours(1)
    schema.write_text(SCHEMA)
    assert stage.json("due", stage.spec)["windows"] == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule, "written_by", lambda: "another")
        assert stage.json("due", stage.spec)["windows"] == hours(1)
    spec = stage.folder / "things.yaml"
    ledger = open_ledger(load_spec(spec).state_url())
    [refusal] = ledger.refused_windows("things")
    ledger.refuse(structs.replace(refusal, plan=""))
    assert stage.json("due", stage.spec)["windows"] == hours(1), "a plan was frozen since"
    ledger.refuse(refusal)
    for setting in ("on_loss: skip", "on_removed: drop"):
        stage.write(f"{TOPIC}, {setting}")
        assert stage.json("due", stage.spec)["windows"] == hours(1)
    stage.write()
    assert stage.json("due", stage.spec)["windows"] == []

    spec.write_text(spec.read_text().replace("0.6", "1.0"))
    assert keys(stage.json("run", stage.spec, "--due")) == hours(1)
    spec.write_text(spec.read_text().replace("1.0", "0.6"))
    shown = stage.json("due", stage.spec)
    assert (shown["windows"], shown["refused"]) == ([], []), "the commit ended the refusal"


def test_what_refuses_every_window_is_no_refusal(stage: Stage) -> None:
    """An error that concerns every window, such as a pause, refuses none: all stay due."""
    stage.json("pause", stage.spec, "--why", "repairs")
    stage.json("run", stage.spec, "--window", hour(0), code=1)
    assert stage.json("due", stage.spec)["windows"] == hours(0, 1, 2, 3)


def test_in_order_a_refused_window_holds_back_the_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If windows must be committed in order, none after a refused window is due."""
    monkeypatch.setattr(PipelineSpec, "in_order", property(lambda _: True))
    stage.json("run", stage.spec, "--window", hour(1), code=1)
    assert stage.json("due", stage.spec)["windows"] == hours(0)


def test_a_retry_reports_what_an_earlier_try_committed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry with the same request reports the windows that the earlier try committed.

    It doesn't report windows that other requests committed.
    """
    arguments = ("run", stage.spec, "--window", hour(3), "--due", "--request", "tick")
    stage.json("run", stage.spec, "--window", hour(2))
    run, jobs = LocalEngine.run, list[object]()

    def once(self: LocalEngine, *arguments: Any) -> Any:
        if jobs:
            raise UnreachableError("The engine is away", "read", "Wait.")
        jobs.append(arguments)
        return run(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "run", once)
        patch.setattr("windrow.ingest.runner.attempts.SPLITS_A_JOB", 1)
        assert keys(stage.json(*arguments, code=3)) == hours(0)
    assert keys(stage.json(*arguments, code=1)) == hours(0, 3)
    assert keys(stage.json(*arguments)) == hours(0, 3)


def test_the_named_window_is_waited_for(stage: Stage) -> None:
    """If the window of --window isn't closed, nothing is run, and the error says when
    it is closed.
    """
    arguments = ("run", stage.spec, "--window", hour(4), "--due")
    error = stage.json(*arguments, code=4)["error"]
    assert error["until"] == hour(5).replace("05:00", "05:05")
    assert stage.json("due", stage.spec)["windows"] == hours(0, 1, 2, 3)


def test_older_windows_are_told(stage: Stage) -> None:
    """A schedule looks at 48 windows; older ones without a commit are named, with advice."""
    stage.json("run", stage.spec, "--window", hour(0))
    stage.now = START + timedelta(hours=50, minutes=5)
    shown = stage.json("due", stage.spec)
    assert (shown["windows"][0], len(shown["windows"])) == (hour(2), 48)
    assert shown["older"] == hours(1)
    assert f"1 window, the first at {hour(1)}." in stage.call("due", stage.spec).stdout


def test_lag_and_state_see_refusals(stage: Stage) -> None:
    """`lag` lists the refused windows, and `state` reports such a window with exit code 4.

    A committed window isn't reported, even if its run died before it removed the refusal.
    """
    stage.json("run", stage.spec, "--due", code=1)
    assert stage.json("lag", stage.spec)["refused"] == hours(1)
    assert f"decides about what was refused: {hour(1)}." in stage.call("lag", stage.spec).stdout
    shown = stage.json("state", stage.spec, "--window", f"{hour(0)}/{hour(2)}", code=4)
    assert [window["state"] for window in shown["windows"]][1] == "refused"
    ledger, spec = stage.assemble(load_spec(Path(stage.spec))).ledger, Path(stage.spec)
    (refusal,) = ledger.refused_windows("things")
    limited = spec.read_text()
    spec.write_text(limited.replace("0.6", "1.0"))
    stage.json("run", stage.spec, "--window", hour(1))
    spec.write_text(limited)
    ledger.refuse(refusal)
    assert stage.json("lag", stage.spec)["refused"] == []
    shown = stage.json("state", stage.spec, "--window", hour(1), code=4)
    assert [window["state"] for window in shown["windows"]] == ["open"]


def test_micro_batches_are_never_due(stage: Stage) -> None:
    """Micro-batches are never due, and the error says how to run them."""
    stage.write(window="grid: batch")
    for command in (("due", stage.spec), ("run", stage.spec, "--due")):
        assert "has micro-batches" in stage.json(*command, code=2)["error"]["message"]
