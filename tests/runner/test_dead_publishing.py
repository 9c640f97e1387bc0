"""Dead letters of committed windows are in their topic at least once, whatever dies;
windows without any pay nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.runner.test_run import START, Desk, hour
from windrow.ingest import crashpoints
from windrow.ingest.admin.dead_replay import DeadReplayRequest, replay_dead_letters
from windrow.ingest.admin.edit_function import RefusedMessage
from windrow.ingest.admin.verify import verify
from windrow.ingest.crashpoints import CRASH_POINTS, DEAD_TOPIC_POINTS, CrashPoint
from windrow.ingest.errors import RefusedError, SpecError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.runner.context import Pipeline, Request, Result
from windrow.ingest.runner.dead_publishing import publish_dead_letters
from windrow.ingest.runner.run_windows import run
from windrow.ingest.testing.dead_topic import MemoryDeadTopic

N = 5
"""The hour with dead letters: two."""


@dataclass
class Office:
    """A desk whose pipeline has a topic for dead letters."""

    desk: Desk
    topic: MemoryDeadTopic = field(default_factory=lambda: MemoryDeadTopic("things.dead"))

    def pipeline(self) -> Pipeline:
        pipeline = self.desk.pipeline(limits={"max_dead_ratio": None})
        return replace(pipeline, dead_topic=self.topic)

    def run(self, n: int = N, **request: Any) -> Result:
        return run(self.pipeline(), hour(n), Request(**{"id": "plain", **request}))

    def seen_letters(self) -> Counter[tuple[int, int]]:
        """Offset and generation of what readers of the topic see."""
        return Counter((letter["_offset"], letter["generation"]) for letter in self.topic.letters)

    def findings(self) -> list[str]:
        p = self.pipeline()
        verified = verify(
            p.spec.id, p.sink, p.dead_letters, p.ledger, p.broker, dead_topic=self.topic.name
        )
        return [
            f"{finding.window}: {finding.what}"
            for finding in verified.findings
            if finding.level == "wrong"
        ]


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """Three hours without dead letters; in the fifth one message is no JSON, and one
    breaks a rule.
    """
    desk = Desk(tmp_path)
    for i, value in enumerate(
        (
            b'{"id": 1, "name": null}',
            b"poison",
            b'{"id": -1, "name": null}',
            b'{"id": 2, "name": null}',
        )
    ):
        desk.broker.produce(
            TopicPartition("shop.things", 0), value, timestamp=START + timedelta(hours=N, minutes=i)
        )
    return Office(desk)


ONCE = Counter({(31, 0): 1, (32, 0): 1})


def test_a_committed_windows_letters_are_published_once(office: Office) -> None:
    """By the run that commits it, and by no later one; the result says how many."""
    first_result, second_result = office.run(), office.run()
    assert first_result.published_dead is not None
    published = first_result.published_dead
    assert (published.topic, published.dead_letters) == ("things.dead", 2)
    assert second_result.published_dead is None
    assert (office.seen_letters(), office.topic.publications, office.findings()) == (ONCE, 1, [])


def test_a_window_without_dead_letters_opens_nothing(office: Office) -> None:
    """No turn at the topic, whether it is run or found committed."""
    assert [office.run(n).published_dead for n in (0, 1, 2, 0)] == [None] * 4
    assert office.topic.publications == 0


def test_a_refused_windows_letters_are_not_published(office: Office) -> None:
    """What isn't committed isn't published; the run that commits it publishes its own attempt's."""
    limited = replace(
        office.pipeline(), spec=office.desk.pipeline(limits={"max_dead_count": 1}).spec
    )
    with pytest.raises(RefusedError):
        run(limited, hour(N), Request("plain"))
    assert office.topic.publications == 0
    office.run()
    assert office.seen_letters() == ONCE


def test_a_topic_that_is_not_there_is_refused_before_anything_is_read(office: Office) -> None:
    """Nothing is planned or committed; once the topic is there, the window is run as any other."""
    office.topic.is_there = False
    with pytest.raises(SpecError, match="There is no topic"):
        office.run()
    assert office.pipeline().ledger.plan(hour(N)) is None
    office.topic.is_there = True
    office.run()
    assert office.seen_letters() == ONCE


MODULES = (
    "windrow.ingest.runner.run_windows",
    "windrow.ingest.runner.freezing",
    "windrow.ingest.runner.task",
    "windrow.ingest.runner.dead_publishing",
    "windrow.ingest.sinks.kit.commit.commit_loop",
)


def dies_at(monkeypatch: pytest.MonkeyPatch, point: CrashPoint) -> None:
    def at_the_point(name: CrashPoint) -> None:
        if name == point:
            raise crashpoints.CrashError(name)

    for module in MODULES:
        monkeypatch.setattr(f"{module}.crash_point", at_the_point)


SOME = pytest.mark.some(2)


@pytest.mark.parametrize(
    "point", [*(pytest.param(point, marks=SOME) for point in CRASH_POINTS), *DEAD_TOPIC_POINTS]
)
def test_a_crash_anywhere(
    office: Office, monkeypatch: pytest.MonkeyPatch, point: CrashPoint
) -> None:
    """Whatever step dies, the next run of the window publishes what isn't noted as published;
    until then verification says so. Only a run that died right before the note publishes
    letters a second time.
    """
    dies_at(monkeypatch, point)
    with pytest.raises(crashpoints.CrashError):
        office.run()
    monkeypatch.undo()
    assert office.seen_letters() == (ONCE if point == "dead_topic.after" else Counter())
    if point in {"commit.after", "report.before", *DEAD_TOPIC_POINTS}:
        assert [finding for finding in office.findings() if "things.dead" in finding] != []
    for _ in range(2):
        office.run()
        twice = ONCE if point == "dead_topic.after" else Counter[tuple[int, int]]()
        assert (office.seen_letters(), office.findings()) == (ONCE + twice, [])


@pytest.mark.parametrize("crash_point", ["report.before", "dead_topic.before"])
def test_a_dead_replay_publishes_what_its_window_left(
    office: Office, monkeypatch: pytest.MonkeyPatch, crash_point: CrashPoint
) -> None:
    """A dead-letter replay refuses nothing anew: it publishes the letters of the attempt that read
    the window, if those are missing, and no others.
    """
    dies_at(monkeypatch, crash_point)
    with pytest.raises(crashpoints.CrashError):
        office.run()
    monkeypatch.undo()

    def edit(message: RefusedMessage) -> RefusedMessage:
        return replace(message, value=b'{"id": 7, "name": null}')

    assert (
        replay_dead_letters(office.pipeline(), hour(N), DeadReplayRequest("m1", edit=edit)).messages
        == 2
    )
    assert (office.seen_letters(), office.findings()) == (ONCE, [])
    office.run()
    assert office.seen_letters() == ONCE


def test_a_replacement_publishes_its_own(office: Office) -> None:
    """A generation that reads the messages again refuses again: its letters come
    besides, and say its generation.
    """
    office.run()
    office.run(id="r1", replace=True)
    office.run(id="r1", replace=True)
    assert office.seen_letters() == ONCE + Counter({(31, 1): 1, (32, 1): 1})


@pytest.mark.parametrize(("accepted", "stored"), [(0, 1), (1, 1), (2, 1), (0, 3)])
def test_a_store_with_other_letters(office: Office, accepted: int, stored: int) -> None:
    """What isn't exactly what was refused isn't published, however many of it were replayed
    since.
    """
    silent = replace(office.pipeline(), dead_topic=None)
    run(silent, hour(N), Request("plain"))
    fixed = iter((b'{"id": 7, "name": null}', b'{"id": 8, "name": null}')[:accepted])
    request = DeadReplayRequest(
        "m1", edit=lambda message: replace(message, value=next(fixed, message.value))
    )
    receipt = replay_dead_letters(silent, hour(N), request).committed.receipt
    assert receipt.counts.dead == 2 - accepted
    p = office.pipeline()
    store = replace(p).dead_letters
    store.count = lambda window, attempt: stored  # type: ignore[method-assign]
    with pytest.raises(
        RefusedError, match=rf"holds {stored} of window .*, and its receipt counts 2"
    ):
        publish_dead_letters(store, office.topic, receipt)
    assert office.topic.publications == 0
