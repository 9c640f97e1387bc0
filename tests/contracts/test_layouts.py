"""Random layouts of logs: each is read to its end and checked."""

from __future__ import annotations

import os
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.contracts.layouts import Layout
from tests.contracts.test_source import kafka_desk, memory_desk

PART = 50
"""Number of layouts of one case; a round of soak has 20 cases, so a thousand layouts."""

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A folder in memory, where a sync costs nothing; None if there is none.

The ledgers of a thousand layouts sync tens of thousands of times. No test kills them.
"""


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.sampled(3, of=20)
def test_layouts_in_memory(part: int, dice: random.Random) -> None:
    """Any mixture of data, markers, aborted and open transactions, and gaps is read exactly once.

    Every read ends.
    """
    for seed in (dice.randrange(2**32) for _ in range(PART)):
        with TemporaryDirectory(dir=MEMORY) as folder:
            layout = Layout(memory_desk(Path(folder)), seed, steps=8)
            layout.read()
            assert layout.desk.verdict(layout.removed).ok, (
                f"seed {seed}: {layout.desk.verdict(layout.removed)}"
            )


@pytest.mark.some(3)
@pytest.mark.broker
@pytest.mark.sampled(15, of=50)
def test_layouts_on_kafka(part: int, dice: random.Random, kafka: str, tmp_path: Path) -> None:
    """Random layouts on real Kafka are read exactly once.

    A read that waits for a message that never comes fails after the reader's stall limit.
    """
    seed = dice.randrange(2**32)
    layout = Layout(kafka_desk(kafka, tmp_path, dice), seed, steps=4)
    layout.read()
    assert layout.desk.verdict().ok, f"seed {seed}: {layout.desk.verdict()}"
