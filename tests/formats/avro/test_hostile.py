"""The time and memory for a hostile message are bounded by its bytes, and the worker survives."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
HANGS = 1_200
"""The timeout in seconds. Linear time takes some seconds; quadratic time would take hours."""
MOST = 4 << 30
"""The address space of a worker in bytes: far less than what the messages claim."""


def hostile(*arguments: str) -> Any:
    """Returns the output of `tests.formats.avro.hostile`, run in a process with a memory limit."""
    command = [sys.executable, "-m", "tests.formats.avro.hostile", *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST)),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_family_ends_with_its_verdict() -> None:
    """Each hostile family ends in linear time, with the same verdict from both decoders.

    The compiled pass takes each message that is a row. Each other message has a reason.
    """
    verdict_by_family = hostile(str(1 << 17))
    assert [
        name
        for name, (reason, is_taken) in verdict_by_family.items()
        if is_taken == (reason is not None)
    ] == []
    assert {
        name: reason
        for name, (reason, _) in verdict_by_family.items()
        if reason not in {None, "not_avro"}
    } == {
        "deep trees": "too_deep",
        "one key again and again": "duplicate_key",
        "a decimal of all bytes": "out_of_range",
        "no UTF-8 at the end": "invalid_utf8",
    }


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["booleans", "points", "empty lists", "entries", "decimals", "nulls, and a byte more"]
)
def test_large_messages_are_rows_within_a_bound_of_memory(family: str) -> None:
    """A large message needs at most 32 bytes of memory for each byte of the batch.

    The memory that the process needs anyway isn't counted. A small message between two large
    messages is a row.
    """
    megabytes = 2
    rows, peak = hostile(str(megabytes << 20), family)
    assert rows == (1 if "more" in family else 3)
    assert peak < 400 + 32 * 2 * megabytes
