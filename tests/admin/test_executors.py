"""`windrow doctor` reports what an executor lacks, by machine, and leaves no files behind."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest

from windrow.ingest.admin.executors import (
    ExecutorReport,
    Marker,
    Survey,
    SurveyReport,
    Trouble,
    survey_executors,
)
from windrow.ingest.cli.doctor import executor_checks
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged
from windrow.ingest.ports.reader import ReadSummary, Take
from windrow.ingest.sinks.kit.files.filesystem import Place

SPLIT = Split("orders", 0, 5, 6)
UNTRIED = (
    "; code and packages are the driver's; no broker tried, because there is no message"
    " yet, no place of the sink"
)


class Reads:
    """A reader whose broker answers."""

    def read(self, split: Split, take: Take) -> ReadSummary:
        """See `Reader.read`."""
        return ReadSummary(split.stop, 0, 0, 0)


class Stalls(Reads):
    """A reader whose broker doesn't answer."""

    def read(self, split: Split, take: Take) -> ReadSummary:
        """See `Reader.read`."""
        raise UnreachableError(
            "nothing arrives", "read", "Open the port.", split.topic, split.partition, split.start
        )


@dataclass
class Cluster:
    """An engine whose executors start one after the other: one more answers in each round.

    Attributes:
        executors: the answers of all executors.
        rounds: the number of rounds so far.
    """

    executors: Sequence[ExecutorReport]
    rounds: int = 0

    def run(self, task: Any, splits: Sequence[Split]) -> Any:
        """See `Engine.run`."""
        self.rounds += 1
        answers = self.executors[: self.rounds]
        empty = Survey(Reads(), (), ())(splits[0])
        for number, split in enumerate(splits):
            yield Staged(
                split,
                empty.counts,
                (msgspec.json.encode(answers[number % len(answers)]).decode(),),
                (),
            )


@pytest.fixture(autouse=True)
def no_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes tasks end immediately, without the wait that keeps an executor busy."""
    monkeypatch.setattr("windrow.ingest.admin.executors.STAY_SECONDS", 0)


def run_survey(survey: Survey) -> ExecutorReport:
    """Returns the report of a task on this machine."""
    (word,) = survey(Split("windrow-doctor", 0, 0, 1)).rows
    return msgspec.json.decode(word, type=ExecutorReport)


def put_marker(folder: Path) -> Marker:
    """Writes the driver's file into a folder."""
    Place(str(folder)).put("mark", b"windrow doctor")
    return Marker(str(folder), "mark")


def test_all_is_well(tmp_path: Path) -> None:
    """The report says where the task ran, and the task leaves no files."""
    report = run_survey(Survey(Reads(), (SPLIT,), (put_marker(tmp_path),)))
    assert report.executor == (socket.gethostname(), str(Path.cwd()))
    assert report.troubles == ()
    assert [path.name for path in tmp_path.iterdir()] == ["mark"]


def test_a_broker_that_does_not_answer_there() -> None:
    """A broker that doesn't answer an executor is reported with one topic-partition.

    Other topic-partitions aren't asked, because each question takes its time.
    """
    report = run_survey(Survey(Stalls(), (SPLIT, Split("orders", 1, 0, 1)), ()))
    assert report.troubles == (
        Trouble("orders[0] can't be read there: nothing arrives", "Open the port."),
    )


def test_a_folder_that_is_another_one_there(tmp_path: Path) -> None:
    """A folder that is not the driver's folder is reported; it is neither made nor written to."""
    (tmp_path / "own").mkdir()
    for folder in (tmp_path / "own", tmp_path / "none"):
        (trouble,) = run_survey(Survey(Reads(), (), (Marker(str(folder), "mark"),))).troubles
        assert (
            trouble.message
            == f"{folder} is another place there: a file that the driver has just written"
            " doesn't exist"
        )
    assert list(tmp_path.iterdir()) == [tmp_path / "own"]
    assert list((tmp_path / "own").iterdir()) == []


def test_executors_that_come_up_late_are_asked_too() -> None:
    """Rounds go on until one finds no new executor.

    A trouble that several executors have is one line with their machines.
    """
    broken = Trouble("orders[0] can't be read there: nothing arrives", "Open the port.")
    cluster = Cluster(
        [
            ExecutorReport("one", "/work/0", "python3", ()),
            ExecutorReport("two", "/work/1", "python3", (broken,)),
            ExecutorReport("three", "/work/2", "python3", (broken,)),
            ExecutorReport("three", "/work/3", "python3", ()),
        ]
    )
    survey = survey_executors(cluster, Survey(Reads(), (), ()), lambda: 8)
    assert (cluster.rounds, len(survey.executors), survey.machines) == (
        5,
        4,
        ["one", "three", "two"],
    )
    first, *others = executor_checks(survey)
    assert first.message == "4 executors on one, three, two answered, with python3" + UNTRIED
    assert [(c.level, c.message, c.exit_code) for c in others] == [
        ("fail", "on three, two: orders[0] can't be read there: nothing arrives", 3),
    ]


def test_many_machines_are_counted() -> None:
    """A line names the first few machines, and counts the others."""
    machines = [ExecutorReport(f"m{n}", "/", "python3", ()) for n in range(9)]
    (line,) = executor_checks(SurveyReport(machines, {}, 8, 1))
    assert line.message.startswith("9 executors on m0, m1, m2 and 6 more answered")
    assert line.message.endswith(
        "; code and packages are the driver's; 8 topic-partitions tried, 1 place of the sink"
    )


def test_what_was_not_tried_is_not_called_well() -> None:
    """Topics without messages and unknown places of a table are reported as not tried.

    If new executors still come up, the report is a warning.
    """
    report = ExecutorReport("one", "/", "python3", ())
    (line,) = executor_checks(SurveyReport([report], {}, 0, 0, complete=False))
    assert line.level == "warn"
    assert line.message.startswith(
        "1 executor on one answered, with python3, and there may be others; "
    )
    assert line.message.endswith(UNTRIED)


def test_a_cluster_without_a_worker_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that never run are waited for up to a limit, and the error says so."""
    monkeypatch.setattr("windrow.ingest.admin.executors.LIMIT_SECONDS", 0.01)
    forever = Event()

    class Waits:
        def run(self, task: Any, splits: Sequence[Split]) -> Any:
            forever.wait(60)
            yield from ()

    with pytest.raises(UnreachableError, match="No task has ended within 0 s"):
        survey_executors(Waits(), Survey(Reads(), (), ()), lambda: 2)
    forever.set()
