"""Publishing dead letters of committed windows: at least once despite deaths, and without cost
for windows without any.
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
"""The hour with two dead letters."""


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
        """Returns offset and generation of each letter in the topic."""
        return Counter((letter["_offset"], letter["generation"]) for letter in self.topic.letters)

    def findings(self) -> list[str]:
        p = self.pipeline()
        verified = verify(
            p.spec.id, p.sink, p.dead_letters, p.ledger, p.broker, dead_topic=self.topic.name
        )
        return [
            f"{finding.window}: {finding.message}"
            for finding in verified.findings
            if finding.level == "wrong"
        ]


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """A desk with three hours without dead letters.

    In the fifth hour one message is no JSON, and one breaks a rule.
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
    """Only the run that commits a window publishes its dead letters.

    The result has their number.
    """
    first_result, second_result = office.run(), office.run()
    assert first_result.published_dead is not None
    published = first_result.published_dead
    assert (published.topic, published.dead_letters) == ("things.dead", 2)
    assert second_result.published_dead is None
    assert (office.seen_letters(), office.topic.publications, office.findings()) == (ONCE, 1, [])


def test_a_window_without_dead_letters_opens_nothing(office: Office) -> None:
    """A window without dead letters opens no connection to the topic, neither when it runs nor
    when it is found committed.
    """
    assert [office.run(n).published_dead for n in (0, 1, 2, 0)] == [None] * 4
    assert office.topic.publications == 0


def test_expired_letters_are_not_published(office: Office) -> None:
    """A window whose dead letters expired before the pipeline got a topic is as committed as any
    other: neither a run nor a verification asks for them.
    """
    pipeline = replace(office.pipeline(), dead_topic=None)
    receipt = run(pipeline, hour(N), Request(id="plain")).committed.receipt
    assert pipeline.dead_letters.expire(receipt.window, receipt.attempt)
    assert office.run().published_dead is None
    assert (office.topic.publications, office.findings()) == (0, [])


def test_a_refused_windows_letters_are_not_published(office: Office) -> None:
    """Dead letters of a refused window aren't published.

    The run that commits it publishes its own attempt's.
    """
    limited = replace(
        office.pipeline(), spec=office.desk.pipeline(limits={"max_dead_count": 1}).spec
    )
    with pytest.raises(RefusedError):
        run(limited, hour(N), Request("plain"))
    assert office.topic.publications == 0
    office.run()
    assert office.seen_letters() == ONCE


def test_a_topic_that_is_not_there_is_refused_before_anything_is_read(office: Office) -> None:
    """A missing topic is refused before anything is planned.

    Once it exists, the window runs normally.
    """
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
    """After a crash at any point the next run publishes the letters, and verification reports
    them until then.

    Only a crash right before the note of the publication publishes letters twice.
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
    """A dead-letter replay publishes the letters of the attempt that read the window, if they
    are missing, and no others.
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
    """A replacement that reads the messages again publishes its own dead letters, with its
    generation.
    """
    office.run()
    office.run(id="r1", replace=True)
    office.run(id="r1", replace=True)
    assert office.seen_letters() == ONCE + Counter({(31, 1): 1, (32, 1): 1})


@pytest.mark.parametrize(("accepted", "stored"), [(0, 1), (1, 1), (2, 1), (0, 3)])
def test_a_store_with_other_letters(office: Office, accepted: int, stored: int) -> None:
    """Dead letters aren't published if the store's differ from the receipt's, however many were
    replayed since.
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
