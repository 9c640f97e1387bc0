"""Dead letters in a topic on real Kafka, with runs that are killed at each point.

A reader finds each letter. It finds a second copy only if the run died before it recorded the
first.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.harness import (
    PipelineSetup,
    millis,
    start_run,
)
from tests.kafka.dead_letters import header_text, read_topic
from tests.kafka.produce import Put, create_topic, delete_topic, produce
from windrow.ingest.crashpoints import DEAD_TOPIC_POINTS
from windrow.ingest.runner.context import Request

pytestmark = pytest.mark.broker

BAD = (b"poison", b'{"id": -1, "name": null}')
COUNT = 60


@pytest.fixture(scope="module")
def source(kafka: str) -> str:
    """An hour in two topic-partitions; every tenth message is refused.

    The refusals alternate between malformed bytes and a broken rule.
    """
    topic = create_topic(kafka, partitions=2)
    values = [
        BAD[i // 10 % 2] if i % 10 == 0 else b'{"id": %d, "name": null}' % i for i in range(COUNT)
    ]
    headers = [("trace", b"\xff")]
    produce(
        kafka,
        topic,
        [Put(v, millis(1, i / 2), i % 2, b"k%d" % i, headers) for i, v in enumerate(values)],
    )  # type: ignore[arg-type]
    produce(kafka, topic, [Put(b'{"id": 1, "name": null}', millis(3), p) for p in (0, 1)])
    return topic


@pytest.fixture
def setup(kafka: str, source: str, tmp_path: Path) -> PipelineSetup:
    """A pipeline with a dead-letter topic of two partitions."""
    (tmp_path / "answers").mkdir()
    return PipelineSetup(
        kafka, source, tmp_path, {"dead_letters": {"topic": create_topic(kafka, partitions=2)}}
    )


def dead_topic(setup: PipelineSetup) -> str:
    return str(setup.overrides["dead_letters"]["topic"])


def count_letters(setup: PipelineSetup) -> Counter[tuple[str | None, ...]]:
    """Returns how often a reader sees each letter, by its message's place and its generation."""
    names = ("__connect.errors.partition", "__connect.errors.offset", "windrow.generation")
    return Counter(
        tuple(header_text(message, name) for name in names)
        for message in read_topic(setup.bootstrap, dead_topic(setup))
    )


def once(generation: int = 0) -> Counter[tuple[str | None, ...]]:
    """Returns each refused message's letter, once.

    Every tenth message has an even number, so all of them are in the first topic-partition.
    """
    return Counter({("0", str(i // 2), str(generation)): 1 for i in range(0, COUNT, 10)})


def test_a_letter_in_the_topic(setup: PipelineSetup) -> None:
    """A letter has the message's bytes and headers, its origin, its reason and the attempt."""
    result = setup.run(1)
    assert result.published_dead is not None
    assert (result.published_dead.dead_letters, count_letters(setup)) == (6, once())
    first = min(
        read_topic(setup.bootstrap, dead_topic(setup)),
        key=lambda m: int(header_text(m, "__connect.errors.offset") or ""),
    )
    assert (first.key(), first.value(), (first.headers() or [])[0]) == (
        b"k0",
        b"poison",
        ("trace", b"\xff"),
    )
    assert [
        header_text(first, name)
        for name in (
            "__connect.errors.topic",
            "__connect.errors.stage",
            "windrow.reason",
            "windrow.attempt",
        )
    ] == [
        setup.topic,
        "VALUE_CONVERTER",
        "not_json",
        result.committed.receipt.attempt,
    ]
    setup.run(1, Request("again", replace=True))
    assert count_letters(setup) == once() + once(1)


@pytest.mark.some(1)
@pytest.mark.parametrize("point", ["commit.after", "report.before", *DEAD_TOPIC_POINTS])
def test_killed(setup: PipelineSetup, point: str) -> None:
    """The next run publishes unrecorded letters after a run that was killed after its commit."""
    killed = start_run(setup, 1, setup.folder / "answers" / "killed", f"{point}:kill")
    killed.join(120)
    assert killed.exitcode == -signal.SIGKILL
    letters_before = once() if point == "dead_topic.after" else Counter[tuple[str | None, ...]]()
    assert count_letters(setup) == letters_before
    results = [setup.run(1) for _ in range(2)]
    assert [(r.recovered, r.published_dead is not None) for r in results] == [
        (True, True),
        (True, False),
    ]
    assert count_letters(setup) == letters_before + once()


def test_a_topic_that_was_removed_meanwhile(setup: PipelineSetup) -> None:
    """A removed dead-letter topic isn't created again.

    The run reports that it is missing, and the window stays committed.
    """
    killed = start_run(setup, 1, setup.folder / "answers" / "killed", "report.before:kill")
    killed.join(120)
    delete_topic(setup.bootstrap, dead_topic(setup))
    answer_file = setup.folder / "answers" / "without"
    rerun = start_run(setup, 1, answer_file)
    rerun.join(120)
    assert "There is no topic" in answer_file.read_text()
    create_topic(setup.bootstrap, 2, name=dead_topic(setup))
    assert setup.run(1).recovered
    assert count_letters(setup) == once()


@pytest.fixture(autouse=True)
def unharmed(setup: PipelineSetup) -> Iterator[None]:
    """A check after each test: the window is committed, and its dead letters are in their table."""
    yield
    pipeline = setup.pipeline()
    (committed,) = pipeline.sink.receipts()
    assert (
        pipeline.dead_letters.count(setup.window(1), committed.receipt.attempt)
        == committed.receipt.counts.dead
        == 6
    )
