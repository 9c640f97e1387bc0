"""Random layouts of logs, each read to its end, and the checker's verdict over each."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.contracts.layouts import Layout
from tests.contracts.test_source import kafka_desk, memory_desk

BLOCK = 50

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where a folder costs no syncs of a disk: the ledgers of a thousand layouts make tens of thousands, and none of them is to be killed."""


@pytest.mark.slow
@pytest.mark.parametrize("block", range(1000 // BLOCK))
def test_a_thousand_layouts_in_memory(block: int) -> None:
    """Data, markers, aborted runs, gaps and open transactions in any mixture: nothing lost, nothing twice, and every read ends."""
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        with TemporaryDirectory(dir=MEMORY) as folder:
            layout = Layout(memory_desk(Path(folder)), seed, steps=8)
            layout.read()
            assert layout.desk.verdict(layout.gone).ok, f"seed {seed}: {layout.desk.verdict(layout.gone)}"


@pytest.mark.broker
@pytest.mark.parametrize("seed", range(5000, 5050))
def test_fifty_layouts_on_kafka(seed: int, kafka: str, tmp_path: Path) -> None:
    """The same on real Kafka, where a read that waits for a message that never comes fails after the reader's stall limit."""
    layout = Layout(kafka_desk(kafka, tmp_path), seed, steps=4)
    layout.read()
    assert layout.desk.verdict().ok, f"seed {seed}: {layout.desk.verdict()}"
