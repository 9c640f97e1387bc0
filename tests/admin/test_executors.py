"""Promise: what an executor lacks is told before a window is run there, by machine, and
nothing that was written for that stays.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest

from windrow.ingest.admin.executors import Answer, Marker, Survey, Surveyed, Trouble, surveyed
from windrow.ingest.cli.doctor import executors
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
    """One whose broker doesn't."""

    def read(self, split: Split, take: Take) -> ReadSummary:
        """See `Reader.read`."""
        raise UnreachableError(
            "nothing arrives", "read", "Open the port.", split.topic, split.partition, split.start
        )


@dataclass
class Cluster:
    """An engine on executors that come up one after the other: in its first round one
    answers, then one more in each.
    """

    executors: Sequence[Answer]
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
    """Nobody else waits for a task here."""
    monkeypatch.setattr("windrow.ingest.admin.executors.STAY_SECONDS", 0)


def run_survey(survey: Survey) -> Answer:
    """What the task says of this machine."""
    (word,) = survey(Split("windrow-doctor", 0, 0, 1)).rows
    return msgspec.json.decode(word, type=Answer)


def put_marker(folder: Path) -> Marker:
    """What the driver writes first."""
    Place(str(folder)).put("mark", b"windrow doctor")
    return Marker(str(folder), "mark")


def test_all_is_well(tmp_path: Path) -> None:
    """The task says where it was, and leaves nothing but what the driver put there itself."""
    report = run_survey(Survey(Reads(), (SPLIT,), (put_marker(tmp_path),)))
    assert report.executor == (socket.gethostname(), str(Path.cwd()))
    assert report.troubles == ()
    assert [path.name for path in tmp_path.iterdir()] == ["mark"]


def test_a_broker_that_does_not_answer_there() -> None:
    """It is told with the topic-partition; what else is read from is not asked any
    more, for each question takes its time.
    """
    report = run_survey(Survey(Stalls(), (SPLIT, Split("orders", 1, 0, 1)), ()))
    assert report.troubles == (
        Trouble("orders[0] can't be read there: nothing arrives", "Open the port."),
    )


def test_a_folder_that_is_another_one_there(tmp_path: Path) -> None:
    """A folder of the same name that is not shared is told, and nothing is written into
    it, nor is it made.
    """
    (tmp_path / "own").mkdir()
    for folder in (tmp_path / "own", tmp_path / "none"):
        (trouble,) = run_survey(Survey(Reads(), (), (Marker(str(folder), "mark"),))).troubles
        assert (
            trouble.what
            == f"{folder} is another place there: a file that the driver has just written"
            " doesn't exist"
        )
    assert list(tmp_path.iterdir()) == [tmp_path / "own"]
    assert list((tmp_path / "own").iterdir()) == []


def test_executors_that_come_up_late_are_asked_too() -> None:
    """Rounds go on until one meets nobody new; a trouble that several have is one line,
    with their machines.
    """
    broken = Trouble("orders[0] can't be read there: nothing arrives", "Open the port.")
    cluster = Cluster(
        [
            Answer("one", "/work/0", "python3", ()),
            Answer("two", "/work/1", "python3", (broken,)),
            Answer("three", "/work/2", "python3", (broken,)),
            Answer("three", "/work/3", "python3", ()),
        ]
    )
    survey = surveyed(cluster, Survey(Reads(), (), ()), lambda: 8)
    assert (cluster.rounds, len(survey.executors), survey.machines) == (
        5,
        4,
        ["one", "three", "two"],
    )
    first, *others = executors(survey)
    assert first.what == "4 executors on one, three, two answered, with python3" + UNTRIED
    assert [(c.level, c.what, c.exit_code) for c in others] == [
        ("fail", "on three, two: orders[0] can't be read there: nothing arrives", 3),
    ]


def test_many_machines_are_counted() -> None:
    """A line names the first few of them."""
    machines = [Answer(f"m{n}", "/", "python3", ()) for n in range(9)]
    (line,) = executors(Surveyed(machines, {}, 8, 1))
    assert line.what.startswith("9 executors on m0, m1, m2 and 6 more answered")
    assert line.what.endswith(
        "; code and packages are the driver's; 8 topic-partitions tried, 1 place of the sink"
    )


def test_what_was_not_tried_is_not_called_well() -> None:
    """A topic without messages and a table whose place a catalog knows are told as not
    tried, and so is it if executors go on coming up.
    """
    report = Answer("one", "/", "python3", ())
    (line,) = executors(Surveyed([report], {}, 0, 0, complete=False))
    assert line.level == "warn"
    assert line.what.startswith(
        "1 executor on one answered, with python3, and there may be others; "
    )
    assert line.what.endswith(UNTRIED)


def test_a_cluster_without_a_worker_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that nobody takes are waited for no longer than a limit, and what to look
    at is said.
    """
    monkeypatch.setattr("windrow.ingest.admin.executors.LIMIT_SECONDS", 0.01)
    forever = Event()

    class Waits:
        def run(self, task: Any, splits: Sequence[Split]) -> Any:
            forever.wait(60)
            yield from ()

    with pytest.raises(UnreachableError, match="No task has ended within 0 s"):
        surveyed(Waits(), Survey(Reads(), (), ()), lambda: 2)
    forever.set()
