"""A message of a megabyte takes a bounded part of a worker, whatever is in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formats.bombs import BOMBS
from windrow.ingest.formats.kinds import FORMATS

DRAWN = "4"
"""The number of messages of a format that `make test` tries."""
MOST_SECONDS, MOST_MEBIBYTES = 10, 320
"""What SECURITY.md says of a message of a megabyte: CPU time, and memory above the worker's."""


def test_each_format_has_its_expensive_messages() -> None:
    """A new format needs an entry in the table of expensive messages."""
    assert set(BOMBS) == set(FORMATS)


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", FORMATS)
def test_a_message_of_a_megabyte_is_a_row_or_a_dead_letter_within_bounds(
    name: str, pytestconfig: pytest.Config
) -> None:
    """An expensive message ends as a row or a dead letter within ten seconds of CPU and 320 MiB.

    This holds by the compiled pass and without it, and the rows beside the message stay. A
    process that takes more CPU time is killed. `make test` draws some of the messages.
    """
    drawn = [DRAWN] if pytestconfig.option.short else []
    done = subprocess.run(
        [sys.executable, "-m", "tests.formats.bombs", name, str(pytestconfig.option.seed), *drawn],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=1_800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    measured = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(measured) >= 2
    assert [
        message
        for message in measured
        if message["seconds"] > MOST_SECONDS
        or message["mebibytes"] > MOST_MEBIBYTES
        or message["verdict"] in {"died", "undecodable"}
    ] == []
