"""The commands with every kind of window, and with several topics."""

from __future__ import annotations

from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress as Bars

from tests.cli.conftest import START, TOPIC, Stage, hour
from windrow.ingest.cli.output import Output
from windrow.ingest.cli.run import progress_shown
from windrow.ingest.model.boundary import TopicPartition, instant
from windrow.ingest.model.source import OnRemoved
from windrow.ingest.runner.progress import Progress

TP0 = TopicPartition("shop.things", 0)
BATCH = "grid: batch"


def keys(document: Any) -> list[int | str]:
    """Returns the starts of the windows in a document."""
    return [w["committed"]["receipt"]["plan"]["window"]["start"] for w in document["windows"]]


def read(document: Any) -> list[int]:
    """Returns the number of messages read by each window in a document."""
    return [w["committed"]["receipt"]["counts"]["read"] for w in document["windows"]]


# --------------------------------------------------------------------------------------------------


@pytest.fixture
def batches(stage: Stage) -> Stage:
    """A pipeline with twelve messages and at most five in a micro-batch."""
    stage.write(window=f"{BATCH}, max_records: 5")
    return stage


def test_the_next_batch(batches: Stage) -> None:
    """`run` without a window commits the next micro-batch, or says that nothing is waiting."""
    assert [(keys(d), read(d)) for d in (batches.json("run", batches.spec) for _ in range(4))] == [
        ([0], [5]),
        ([1], [5]),
        ([2], [2]),
        ([], []),
    ]
    assert batches.call("run", batches.spec).stdout == "Nothing is waiting.\n"
    batches.write(window=f"{BATCH}, min_records: 3")
    assert (
        batches.call("run", batches.spec).stdout
        == "Nothing is waiting: fewer than 3 new offsets.\n"
    )
    assert batches.json("verify", batches.spec)["findings"] == []


def test_a_message_waits_for_others_up_to_max_delay(batches: Stage) -> None:
    """With `max_delay`, fewer than `min_records` are committed once the first one is older."""
    batches.write(window=f"{BATCH}, min_records: 100, max_delay: 3650d")
    assert batches.call("run", batches.spec).stdout == (
        "Nothing is waiting: fewer than 100 new offsets, and none that is older than"
        " window.max_delay.\n"
    )
    batches.write(window=f"{BATCH}, min_records: 100, max_delay: 1m")
    assert read(batches.json("run", batches.spec)) == [12]
    batches.write(window=f"{BATCH}, max_delay: 1m")
    refused = batches.call("run", batches.spec)
    assert refused.exit_code == 2
    assert "window.max_delay: needs a window.min_records above 1" in refused.stderr


def test_a_request_names_its_batch(batches: Stage) -> None:
    """A run with the same request reports its batch again, and makes no new one."""
    first = batches.json("run", batches.spec, "--request", "r")["windows"][0]
    second_run = batches.json("run", batches.spec, "--request", "r")["windows"][0]
    assert (first["recovered"], second_run["recovered"]) == (False, True)
    assert first["committed"] == second_run["committed"]


def test_drain(batches: Stage) -> None:
    """`--drain` runs all waiting batches, and reports them again with the same request."""
    drained = batches.json("run", batches.spec, "--drain", "--request", "r")
    assert (keys(drained), read(drained)) == ([0, 1, 2], [5, 5, 2])
    assert [
        w["recovered"]
        for w in batches.json("run", batches.spec, "--drain", "--request", "r")["windows"]
    ] == [True] * 3
    assert batches.json("run", batches.spec, "--drain")["windows"] == []


def test_batches_that_are_named(batches: Stage) -> None:
    """Batches can be named by number, by name or as a range.

    A batch that doesn't exist yet is refused with advice.
    """
    batches.json("run", batches.spec, "--drain")
    assert keys(batches.json("run", batches.spec, "--window", "1")) == [1]
    replayed = batches.json("replay", batches.spec, "--window", "0/2")
    assert [w["committed"]["receipt"]["generation"] for w in replayed["windows"]] == [1, 1]
    shown = batches.call("show", batches.spec, "--window", "batch-000000002").stdout
    assert "batch-000000002" in shown
    assert "batch-000000001" not in shown
    error = batches.json("run", batches.spec, "--window", "7", code=2)["error"]
    assert error["message"].startswith("batch-000000007 of things was not cut yet")
    assert f"windrow run {batches.spec}, without a window" in error["message"]
    assert (
        batches.json("run", batches.spec, "--window", hour(0), code=2)["error"]["kind"]
        == "SpecError"
    )
    assert batches.json("verify", batches.spec)["findings"] == []


def test_a_batch_that_was_begun_goes_on(batches: Stage) -> None:
    """A refused batch is run again, by its number or as the next one, before any later one."""
    batches.write(window=f"{BATCH}, max_records: 6")
    broken = Path(batches.spec).read_text()
    Path(batches.spec).write_text(broken.replace("ratio: 0.6", "ratio: 0"))
    assert batches.json("run", batches.spec, code=1)["error"]["kind"] == "DeadLetterLimitError"
    (plan,) = batches.json("plan", batches.spec)["plans"]
    assert (plan["window"], plan["frozen"]) == ("batch-000000000", ["start", "end", "plan"])
    Path(batches.spec).write_text(broken)
    assert keys(batches.json("run", batches.spec, "--window", "0")) == [0]
    assert keys(batches.json("run", batches.spec)) == [1]


def test_plan_of_the_next_batch(batches: Stage) -> None:
    """`plan` without a window shows the next micro-batch and freezes nothing.

    The run then reads exactly that.
    """
    for number, frozen in ((0, []), (1, ["start"])):
        (plan,) = batches.json("plan", batches.spec)["plans"]
        assert (plan["window"], plan["end"], plan["frozen"]) == (
            f"batch-{number:09d}",
            f"batch-{number + 1:09d}",
            frozen,
        )
        assert sum(p["messages_at_most"] for p in plan["partitions"]) == 5
        assert {p["stop_how"] for p in plan["partitions"]} == {"batch"}
        assert batches.json("plan", batches.spec)["plans"] == [plan]
        ran = batches.json("run", batches.spec)["windows"][0]["committed"]["receipt"]
        assert ran["digest"] == plan["digest"]
    (frozen_plan,) = batches.json("plan", batches.spec, "--window", "0")["plans"]
    assert frozen_plan["frozen"] == ["start", "end", "plan"]
    for command, number in (("plan", 2), ("plan", 3), ("run", 2), ("run", 3)):
        error = batches.json(command, batches.spec, "--window", str(number), code=2)["error"]
        assert f"batch-{number:09d} of things was not cut yet" in error["message"]
    batches.json("run", batches.spec)
    assert batches.json("plan", batches.spec) == {
        "pipeline": "things",
        "plans": [],
        "done": None,
        "paused": None,
        "fillable": [],
    }
    assert batches.call("plan", batches.spec).stdout == "Nothing is waiting.\n"


def test_batches_with_an_end(batches: Stage) -> None:
    """Every command says how much is left up to window.stop, or that it is reached.

    Messages and partitions from after the stop was frozen are named. With another stop, the
    pipeline continues.
    """
    batches.write(window=f"{BATCH}, max_records: 5, stop: latest")
    batches.broker.produce(TP0, b'{"id": 7}', timestamp=START)
    assert batches.json("plan", batches.spec)["done"] is False
    ran = batches.json("run", batches.spec)
    assert (keys(ran), ran["done"]) == ([0], False)
    assert (
        "Offsets left up to window.stop: 8, of shop.things[0]"
        in batches.call("lag", batches.spec).stdout
    )
    batches.broker.add_partitions("shop.things", 3)
    for tp in (TP0, TopicPartition("shop.things", 2)):
        batches.broker.produce(tp, b'{"id": 8}', timestamp=START)
    ran = batches.json("run", batches.spec, "--drain")
    assert (read(ran), ran["done"]) == ([5, 3], True)
    done = "Done: all up to window.stop is committed."
    for command in ("run", "plan", "show", "lag"):
        assert done in batches.call(command, batches.spec).stdout
        assert batches.json(command, batches.spec)["done"] is True
    unread = batches.json("lag", batches.spec)["lag"]
    assert (unread["records"], unread["newer"]) == (0, [{"topic": "shop.things", "partition": 2}])
    assert "newer than window.stop: shop.things[2]." in batches.call("lag", batches.spec).stdout
    assert "all up to window.stop is committed" in batches.call("doctor", batches.spec).stdout
    assert batches.json("verify", batches.spec)["findings"] == []
    batches.write(window=f"{BATCH}, stop: {{offsets: {{0: 3}}, others: latest}}")
    for command in ("run", "plan"):
        error = batches.json(command, batches.spec, code=2)["error"]
        assert "is offset 3, and the next micro-batch begins at 8" in error["message"]
    assert batches.json("doctor", batches.spec, code=2)["checks"][-2]["level"] == "fail"
    batches.write(window=f"{BATCH}, stop: {{offsets: {{0: 10}}, others: latest}}")
    ran = batches.json("run", batches.spec)
    assert (read(ran), ran["done"]) == ([2], False)
    assert batches.call("run", batches.spec).stdout == (
        "Nothing is waiting. Offsets left up to window.stop: 1, of shop.things[0].\n"
    )


def test_doctor_of_batches(batches: Stage) -> None:
    """Doctor's check of retention is about messages that no batch has read."""
    batches.json("run", batches.spec)
    assert "the unread messages do not expire" in batches.call("doctor", batches.spec).stdout
    batches.broker.delete_records(TP0, 7)
    failed = batches.json("doctor", batches.spec, code=1)["checks"][-1]
    assert (failed["name"], failed["level"]) == ("retention", "fail")
    assert "shop.things[0]" in failed["what"]


# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["run"], ["run", "--request", "r"], ["plan"]])
def test_windows_in_time_are_named(stage: Stage, command: list[str]) -> None:
    """Windows in time must be named."""
    error = stage.json(command[0], stage.spec, *command[1:], code=2)["error"]
    assert "--window doesn't say which" in error["message"]


def test_drain_is_for_batches(stage: Stage) -> None:
    """`--drain` with windows in time is refused."""
    assert (
        "--drain is for micro-batches"
        in stage.json("run", stage.spec, "--drain", code=2)["error"]["message"]
    )


@pytest.mark.parametrize(
    ("grid", "ends"),
    [("daily", [24]), ("'0 */8 * * *'", [8, 16, 24]), ("'0 0,1,9 * * *'", [1, 9, 24])],
)
def test_every_grid(stage: Stage, grid: str, ends: list[int]) -> None:
    """`plan`, `run`, `replay` and `show` work on any grid, also with windows of
    different lengths.
    """
    stage.write(window=f"grid: {grid}, start: 2026-01-05T00:00:00Z")
    stage.now = START + timedelta(days=1, hours=1)
    window_range = f"{hour(0)}/{hour(24)}"
    planned = stage.json("plan", stage.spec, "--window", window_range)["plans"]
    assert [p["end"] for p in planned] == [hour(n) for n in ends]
    ran = stage.json("run", stage.spec, "--window", window_range)
    assert sum(read(ran)) == 12
    assert [w["committed"]["receipt"]["digest"] for w in ran["windows"]] == [
        p["digest"] for p in planned
    ]
    last = hour([0, *ends][-2])
    assert (
        stage.json("replay", stage.spec, "--window", last)["windows"][0]["committed"]["receipt"][
            "generation"
        ]
        == 1
    )
    assert [
        w["receipt"]["plan"]["window"]["end"] for w in stage.json("show", stage.spec)["windows"]
    ] == [hour(n) for n in ends]
    assert stage.json("verify", stage.spec)["findings"] == []


def test_a_request_is_one_for_all_its_windows(stage: Stage) -> None:
    """A run's request is in all its receipts."""
    ran = stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}", "--request", "nightly")
    assert [w["committed"]["receipt"]["request"] for w in ran["windows"]] == ["nightly"] * 2


def test_an_open_transaction_is_waited_for(stage: Stage) -> None:
    """A run waits for an open transaction up to max_wait, then continues with a warning."""
    opened = stage.broker.transaction()
    stage.broker.produce(
        TP0, b'{"id": 1}', timestamp=START + timedelta(hours=3), transaction=opened
    )
    stage.now = START + timedelta(hours=4, minutes=6)
    output = stage.call("run", stage.spec, "--window", hour(3)).stdout
    assert stage.now >= START + timedelta(hours=4, minutes=10)
    assert "a transaction was still open" in output


def test_a_bar_is_drawn_when_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, a progress bar shows the newest text, with notes above it.

    It is drawn rarely, and removed with its step.
    """
    progress_bars: list[Noting] = []

    class Noting(Bars):
        def __init__(self, *columns: Any, **settings: Any) -> None:
            super().__init__(*columns, **settings)
            self.drawn = 0
            progress_bars.append(self)

        def refresh(self) -> None:
            self.drawn += 1
            super().refresh()

    monkeypatch.setattr("rich.progress.Progress", Noting)
    monkeypatch.setattr("windrow.ingest.cli.run.REDRAWN_SECONDS", 3600.0)
    monkeypatch.setenv("TERM", "xterm")
    text = StringIO()
    monkeypatch.setattr(text, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", text)
    output = Output(json=False)
    with progress_shown(output) as progress:
        progress(Progress("Reading", notes=("Reading [window]: 2 splits",)))
        drawn = progress_bars[0].drawn
        for done in range(1000):
            progress(Progress(f"Reading: {done}", done, 1000))
        assert progress_bars[0].drawn == drawn
        monkeypatch.setattr("windrow.ingest.cli.run.REDRAWN_SECONDS", 0.0)
        progress(Progress("Reading [/window]: 999", 999, 1000))
        (shown,) = (task for task in progress_bars[0].tasks if task.visible)
        assert (shown.description, shown.completed, shown.total) == (
            "Reading [/window]: 999",
            999,
            1000,
        )
        progress(Progress(""))
        assert not any(task.visible for task in progress_bars[0].tasks)
    assert text.getvalue().count("Reading [window]: 2 splits") == 1
    assert "Reading [/window]: 999" in text.getvalue()


# --------------------------------------------------------------------------------------------------


@pytest.fixture
def several(stage: Stage) -> Stage:
    """A pipeline with a pattern and a second topic, which has two messages in the first hour."""
    stage.write("topic_pattern: 'shop[.].*'")
    stage.broker.create_topic("shop.gifts", retention_ms=None)
    for i in range(2):
        stage.broker.produce(
            TopicPartition("shop.gifts", 0),
            b'{"id": %d}' % i,
            timestamp=START + timedelta(seconds=i),
        )
    return stage


def test_several_topics(several: Stage) -> None:
    """With several topics, `plan`, `run` and `show` print the topic of each offset."""
    planned = several.json("plan", several.spec, "--window", hour(0))["plans"][0]["partitions"]
    assert [(p["topic"], p["partition"], p["messages_at_most"]) for p in planned] == [
        ("shop.gifts", 0, 2),
        ("shop.things", 0, 3),
        ("shop.things", 1, 2),
    ]
    assert "shop.gifts[0]" in several.call("plan", several.spec, "--window", hour(0)).stdout
    for output in (
        several.call("run", several.spec, "--window", hour(0)).stdout,
        several.call("show", several.spec).stdout,
    ):
        assert "shop.gifts  0: 0..2" in output
        assert "shop.things  0: 0..3  1: 0..2" in output
    assert several.json("verify", several.spec)["rows"] == 6


def test_splits_are_counted(stage: Stage) -> None:
    """`plan` prints the number of splits of each topic-partition."""
    stage.write(f"{TOPIC}, split_records: 2")
    planned = stage.json("plan", stage.spec, "--window", hour(0))["plans"][0]["partitions"]
    assert [(p["partition"], p["messages_at_most"], p["splits"]) for p in planned] == [
        (0, 3, 2),
        (1, 2, 1),
    ]
    assert "0: 0..3  1: 0..2" in stage.call("run", stage.spec, "--window", hour(0)).stdout


def test_a_topic_that_is_new_begins_where_the_plan_says(several: Stage) -> None:
    """`plan` shows where a new topic begins, and the run begins there."""
    several.json("run", several.spec, "--window", hour(0))
    several.broker.create_topic("shop.new", retention_ms=None)
    for i in range(3):
        several.broker.produce(
            TopicPartition("shop.new", 0), b'{"id": 7}', timestamp=START + timedelta(minutes=40 * i)
        )
    (plan,) = several.json("plan", several.spec, "--window", hour(1))["plans"]
    new = next(p for p in plan["partitions"] if p["topic"] == "shop.new")
    ran = several.json("run", several.spec, "--window", hour(1))["windows"][0]["committed"][
        "receipt"
    ]
    split = next(s for s in ran["plan"]["splits"] if s["topic"] == "shop.new")
    assert (split["start"], split["stop"]) == (new["start"], new["stop"])
    assert ran["digest"] == plan["digest"]


def test_rights_per_topic(several: Stage) -> None:
    """`doctor` has a check for each topic; a topic that can't be read doesn't hide the others."""
    several.broker.create_topic("shop.empty", retention_ms=None)
    rights = [
        c["what"] for c in several.json("doctor", several.spec)["checks"] if c["name"] == "rights"
    ]
    assert [message.split()[0] for message in rights] == ["shop.empty", "shop.gifts", "shop.things"]
    assert "it is empty" in rights[0]
    assert "(2 partitions) may be described and read" in rights[2]


@pytest.mark.parametrize(("policy", "code"), [("fail", 1), ("drop", 0)])
def test_a_topic_that_is_gone(several: Stage, policy: OnRemoved, code: int) -> None:
    """`doctor` treats a deleted topic according to `source.on_removed`."""
    several.write(f"topic: [shop.gifts, shop.things], on_removed: {policy}")
    several.json("run", several.spec, "--window", hour(0))
    several.broker.delete_topic("shop.gifts")
    checks = several.json("doctor", several.spec, code=code)["checks"]
    assert ("shop.gifts" in str(checks)) == (policy == "fail")


# --------------------------------------------------------------------------------------------------


def test_partial_late_and_early(stage: Stage) -> None:
    """Columns for rare counts are printed only if a window has them.

    A run says in words what a window lost.
    """
    stage.write(f"{TOPIC}, on_loss: skip")
    plain = stage.call("run", stage.spec, "--window", hour(0)).stdout
    assert "skipped" not in plain
    assert "late" not in plain
    stage.broker.delete_records(TP0, 4)
    late: datetime = START + timedelta(minutes=5)
    stage.broker.produce(TP0, b'{"id": 1}', timestamp=late)
    for i in range(60):
        stage.broker.produce(TP0, b'{"id": 1}', timestamp=START + timedelta(hours=4, minutes=i))
    output = stage.call("run", stage.spec, "--window", f"{hour(1)}/{hour(4)}").stdout
    assert "skipped" in output
    assert f"{hour(1)}: partial: " in output
    shown = stage.call("show", stage.spec).stdout
    assert all(word in shown for word in ("skipped", "late", "partial"))
    assert instant(START) in shown
    verified = stage.json("verify", stage.spec)
    assert {f["level"] for f in verified["findings"]} == {"info"}
    assert "the window is partial" in stage.call("verify", stage.spec).stdout


def test_a_group_that_refuses_is_told(stage: Stage) -> None:
    """If the consumer group refuses offsets, the window is still committed, and the run says so."""
    stage.write(f"{TOPIC}, offsets_group: lag-tools")
    assert "lag-tools" not in stage.call("run", stage.spec, "--window", hour(0)).stdout
    stage.broker.refuse_offsets("lag-tools", "consumers are at work in it")
    result = stage.call("run", stage.spec, "--window", hour(1))
    assert result.exit_code == 0
    assert "consumers are at work in it" in result.stdout
    group_offsets = stage.json("run", stage.spec, "--window", hour(1))["windows"][0][
        "group_offsets"
    ]
    assert (group_offsets["succeeded"], group_offsets["failed"]) == (0, 2)
