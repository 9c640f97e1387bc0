"""The compiled passes read no byte outside their messages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_no_byte_outside_its_memory_is_looked_at(kind: str) -> None:
    """The compiled passes never use a wrong index.

    Each format's own comparison runs in a process in which numba checks the bounds of arrays.
    """
    done = subprocess.run(
        [sys.executable, "-m", f"tests.formats.{kind}.test_onepass"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "checked"), done.stderr
