"""No broken message makes a compiled pass look beyond its memory, or at a neighbour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.formats.fuzz import PASSES
from windrow.ingest.cli import prepare

FUZZED = [module for module, make in PASSES.items() if callable(make)]
BROKEN = 10_000


def decoded(module: str, seed: int, *, checks_bounds: bool) -> Any:
    """Returns what a process says that decodes broken messages of this seed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.formats.fuzz", module, str(seed), str(BROKEN)],
        cwd=Path(__file__).parents[2],
        env=os.environ | ({"NUMBA_BOUNDSCHECK": "1"} if checks_bounds else {}),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout)


def test_each_compiled_module_is_fuzzed_or_says_why_not() -> None:
    """A new compiled pass needs an entry in the table of those that get broken messages."""
    assert set(PASSES) == set(prepare.PASSES)


@pytest.mark.some(1)
@pytest.mark.slow
@pytest.mark.parametrize("module", FUZZED)
def test_broken_messages_are_read_within_their_bounds(
    module: str, pytestconfig: pytest.Config
) -> None:
    """Where all bounds are checked, ten thousand broken messages meet none, and each message has
    the verdict and the values that it has without checks, alone, and among any others.
    """
    checked = decoded(module, pytestconfig.option.seed, checks_bounds=True)
    assert checked == decoded(module, pytestconfig.option.seed, checks_bounds=False)
    assert checked["rows"] > BROKEN / 100, "too few messages are read to their end"
