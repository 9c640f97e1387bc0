"""The compiled passes look at no byte that isn't theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_no_byte_outside_its_memory_is_looked_at(kind: str) -> None:
    """The same code with checks of all bounds, in a process of its own, on what the format's own
    tests make up: no index is ever wrong.
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
