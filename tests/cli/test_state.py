"""`windrow state`: whether windows are complete."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import HOURLY, SCHEMA, START, Stage, hour
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.boundary import TopicPartition


def states(document: Any) -> dict[str, str]:
    return {window["window"]: window["state"] for window in document["windows"]}


def test_states(stage: Stage) -> None:
    """A window is complete when its hours are over in every topic-partition.

    It is late if later windows have some of its messages. Otherwise the command ends with 4,
    and says which topic-partition holds it open, or that it isn't committed.
    """
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(3)}")
    shown = stage.json("state", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    assert states(shown) == {hour(0): "complete", hour(1): "complete"}
    assert (shown["watermark"], shown["holding"]) == (hour(3), [])

    shown = stage.json("state", stage.spec, "--window", f"{hour(2)}/{hour(4)}", code=4)
    assert states(shown) == {hour(2): "complete", hour(3): "uncommitted"}
    assert shown["error"]["message"] == (
        f"Not committed of things: {hour(3)}. `windrow run {stage.spec} --window"
        f" {hour(3)}` commits it, or says why not."
    )

    stage.produce(0, b'{"id": 1}', b'{"id": 1}')  # more than an hour late
    stage.json("run", stage.spec, "--window", hour(3))
    shown = stage.json("state", stage.spec, "--window", hour(3), code=4)
    assert states(shown) == {hour(3): "open"}
    assert "`shop.things[0]`, `shop.things[1]` hold the watermark at" in shown["error"]["message"]
    assert "set `window.idle: exempt`" in shown["error"]["message"]
    assert stage.json("state", stage.spec, "--window", hour(0))["windows"] == [
        {"window": hour(0), "state": "late", "late_elsewhere": 2}
    ]
    assert stage.call("state", stage.spec, "--window", hour(0)).stdout == (
        f"{hour(0)}: late, 2 messages of its hours in later windows\n"
    )


DATED = """\
import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    id: pl.Int64
    sent_on: pl.Date = pa.Field(nullable=True)
    created_at: pl.Datetime("us", "UTC") = pa.Field(nullable=True)
"""


def test_states_by_event_time(stage: Stage) -> None:
    """With `event_delay` events complete a window, and later ones make it late again.

    So does a dead letter that a replay accepts: it counts by its event time from then on.
    """
    (stage.folder / "schema.py").write_text(DATED)
    stage.write(window=f"{HOURLY}, event_time: created_at, event_delay: 30m")

    def send(n: int, *events: str, number: str = "1") -> None:
        values = (f'{{"id": {number}, "created_at": "2026-01-05T{event}Z"}}' for event in events)
        stage.produce(n, *(value.encode() for value in values))

    send(4, "04:10:00", "03:10:00")
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(5)}")
    shown = stage.json("state", stage.spec, "--window", hour(3), code=4)
    assert shown["event_time"] == "created_at"
    assert shown["event_watermark"] == "2026-01-05T03:10:00Z"
    assert states(shown) == {hour(3): "open"}
    assert "`shop.things[1]` holds the event watermark at" in shown["error"]["message"]
    send(5, "04:40:00", "04:30:00")
    send(6, "05:40:00", "05:40:00")
    send(6, "03:30:00", number='"7"')
    stage.json("run", stage.spec, "--window", f"{hour(5)}/{hour(7)}")
    complete = [{"window": hour(3), "state": "complete", "late_elsewhere": 0}]
    assert stage.json("state", stage.spec, "--window", hour(3))["windows"] == complete
    spec = Path(stage.spec)
    spec.write_text(spec.read_text().replace('Thing"}', 'Thing", coerce: lenient}'))
    stage.json("dead", "replay", stage.spec, "--window", hour(6))
    late = [{"window": hour(3), "state": "late", "late_elsewhere": 1}]
    assert stage.json("state", stage.spec, "--window", hour(3))["windows"] == late
    stage.write(window=HOURLY)  # the receipts stay as they are
    assert stage.json("state", stage.spec, "--window", hour(3))["windows"] == [
        {"window": hour(3), "state": "late", "late_elsewhere": 2}
    ]


@pytest.mark.parametrize("command", ["plan", "run", "doctor"])
def test_a_column_that_has_no_event_times(stage: Stage, command: str) -> None:
    """A column that is missing, or has no timestamps, is refused before anything is read.

    The message names the columns that could be meant.
    """
    for name, type_text, schema, advice in (
        ("created", "", DATED, "Set it to one of the columns with timestamps: created_at"),
        ("sent_on", ": it is date32[day]", DATED, "columns with timestamps: created_at"),
        ("created_at", "", SCHEMA, "Add a column of timestamps to the schema"),
    ):
        (stage.folder / "schema.py").write_text(schema)
        stage.write(window=f"{HOURLY}, event_time: {name}")
        window = [] if command == "doctor" else ["--window", hour(0)]
        shown = stage.call(command, stage.spec, *window, "--json")
        expected = f"no timestamp column {name}, which window.event_time names{type_text}"
        assert shown.exit_code != 0
        assert expected in shown.output
        assert advice in shown.output


def test_the_oldest_window_of_several(stage: Stage) -> None:
    """A window's state is found however many windows come after it.

    If windows are open and not committed, those without a commit are named.
    """
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(4)}")
    for n in range(4):
        stage.now = stage.now.replace(day=5, hour=4 + n, minute=10 * (n % 2))
        shown = stage.json("state", stage.spec, "--window", f"{hour(0)}/{hour(3)}")
        assert states(shown) == {hour(m): "complete" for m in range(3)}
    document = stage.json("state", stage.spec, "--window", f"{hour(3)}/{hour(6)}", code=4)
    assert states(document) == {hour(3): "open", hour(4): "uncommitted", hour(5): "uncommitted"}
    message = document["error"]["message"]
    assert message.startswith(f"Not committed of things: {hour(4)}, {hour(5)}.")
    assert f"--window {hour(4)}` commits it" in message


def test_a_watermark_at_the_end_of_an_old_window(stage: Stage) -> None:
    """The watermark is looked up as far back as the window, whatever came later."""
    for n in range(4, 10):
        timestamp = START + timedelta(hours=n)
        stage.broker.produce(TopicPartition("shop.things", 0), b'{"id": 1}', timestamp=timestamp)
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(10)}")
    stage.now = stage.now.replace(day=5, hour=10, minute=10)
    shown = stage.json("state", stage.spec, "--window", hour(2))
    assert (states(shown), shown["watermark"]) == ({hour(2): "complete"}, hour(3))


def test_a_cluster_that_does_not_answer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the cluster doesn't answer, `state` ends with 3, because the state isn't known."""

    def away(*_: object) -> object:
        raise UnreachableError("The broker is away", "plan", "Wait.")

    stage.json("run", stage.spec, "--window", hour(0))
    monkeypatch.setattr(type(stage.broker), "topics", away)
    stage.json("state", stage.spec, "--window", hour(0), code=3)


def test_micro_batches_have_no_state(stage: Stage) -> None:
    """Micro-batches have no hours, so they have no state."""
    stage.write(window="grid: batch")
    error = stage.json("state", stage.spec, "--window", "0", code=2)["error"]
    assert "has micro-batches, which have no hours to be complete" in error["message"]


def test_too_early_says_until_when(stage: Stage) -> None:
    """The error of a window that is run too early has the time of the next try as a field."""
    stage.now = stage.now.replace(hour=1, day=5)
    error = stage.json("run", stage.spec, "--window", hour(1), code=4)["error"]
    assert error["until"] == hour(2).replace("02:00", "02:05")
