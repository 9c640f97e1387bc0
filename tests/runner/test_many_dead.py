"""A window with only dead letters takes no more memory than its batches when they are staged,
shown, exported, published and replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.runner.test_run import START, Desk, hour
from windrow.ingest.admin.chosen_dead_letters import dead_letters_of
from windrow.ingest.admin.dead_replay import DeadReplayRequest, replay_dead_letters
from windrow.ingest.admin.edit_function import RefusedMessage
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Window
from windrow.ingest.runner.context import Pipeline, Request
from windrow.ingest.runner.dead_publishing import publish_dead_letters
from windrow.ingest.runner.run_windows import run

pytestmark = pytest.mark.slow

COUNT, SIZE = 40_000, 8_000
MOST = 96 << 20
"""Bytes that Arrow may hold for 320 MB of letters: a row group, the batches of one, and the
data read at a time.
"""


@dataclass
class Passing:
    """A topic that only counts its letters."""

    name: str = "things.dead"
    count: int = 0

    def refuse_unwritable(self) -> None:
        """Does nothing, because the topic can be written."""

    def publish(self, window: Window, dead_letters: Iterable[pa.RecordBatch]) -> None:
        del window
        self.count += sum(len(batch.to_pylist()) for batch in dead_letters)


@contextmanager
def limit_memory(limit: int) -> Iterator[None]:
    """Asserts that Arrow holds at most `limit` more bytes at once."""
    pool = pa.proxy_memory_pool(old_pool := pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        yield
    finally:
        pa.set_memory_pool(old_pool)
    assert pool.max_memory() is not None
    assert pool.max_memory() < limit, f"{(pool.max_memory() or 0) >> 20} MiB"


@pytest.fixture
def refused(tmp_path: Path) -> Pipeline:
    """A pipeline whose fifth hour has only dead letters; it is committed within the limit."""
    desk, poison = Desk(tmp_path), b"x" * SIZE
    for i in range(COUNT):
        desk.broker.produce(
            TopicPartition("shop.things", 0),
            poison,
            timestamp=START + timedelta(hours=5, milliseconds=i),
        )
    desk.broker.produce(
        TopicPartition("shop.things", 0),
        b'{"id": 1, "name": null}',
        timestamp=START + timedelta(hours=7),
    )
    pipeline = desk.pipeline(limits={"max_dead_ratio": None})
    with limit_memory(MOST):
        assert run(pipeline, hour(5), Request("plain")).committed.receipt.counts.dead == COUNT
    return pipeline


def _read(pipeline: Pipeline) -> None:
    (committed,) = pipeline.sink.receipts()
    assert (
        sum(
            b.num_rows
            for b in dead_letters_of(pipeline.dead_letters, hour(5), committed.receipt.attempt)
        )
        == COUNT
    )


def _publish(pipeline: Pipeline) -> None:
    (committed,) = pipeline.sink.receipts()
    topic = Passing()
    publish_dead_letters(pipeline.dead_letters, topic, committed.receipt)
    assert topic.count == COUNT


def _keep(pipeline: Pipeline) -> None:
    result = replay_dead_letters(
        pipeline,
        hour(5),
        DeadReplayRequest(
            "m1", edit=lambda message: edited_one(message) if message.offset % 2 else None
        ),
    )
    assert (result.open, result.messages) == (COUNT, COUNT // 2)


def edited_one(message: RefusedMessage) -> RefusedMessage:
    return replace(message, value=b'{"id": 7, "name": null}')


@pytest.mark.some(1)
@pytest.mark.parametrize("use", [_read, _publish, _keep], ids=["shown", "published", "replayed"])
def test_memory_does_not_grow_with_them(refused: Pipeline, use: Callable[[Pipeline], None]) -> None:
    """Each use of a window's dead letters reads them batch by batch."""
    with limit_memory(MOST):
        use(refused)
