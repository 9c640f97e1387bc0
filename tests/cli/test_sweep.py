"""`windrow sweep`: what runs have left behind is shown, and removed by word of a person only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Stage, hour


@pytest.fixture
def left(stage: Stage) -> Path:
    """A file that a run staged long ago and no commit names, in a table with a window."""
    stage.json("run", stage.spec, "--window", hour(0))
    for committed in (stage.folder / "lake").rglob("*.parquet"):
        os.utime(committed, (1_000_000_000, 1_000_000_000))
    orphan = stage.folder / "lake" / "things" / "data" / "20260105T000000Z" / "died.parquet"
    orphan.write_bytes(b"rows")
    os.utime(orphan, (1_000_000_000, 1_000_000_000))
    return orphan


def test_it_shows_and_removes_nothing(stage: Stage, left: Path) -> None:
    """Without --yes the files are named, and stay."""
    assert stage.json("sweep", stage.spec) == {"pipeline": "things", "files": [str(left)], "removed": False}
    assert "Nothing was removed; add --yes to remove 1 file." in stage.call("sweep", stage.spec).stdout
    assert left.exists()


def test_it_removes_what_no_commit_names(stage: Stage, left: Path) -> None:
    """With --yes the orphan goes, the committed rows and dead letters stay, and the table verifies."""
    assert stage.json("sweep", stage.spec, "--yes") == {"pipeline": "things", "files": [str(left)], "removed": True}
    assert not left.exists()
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []
    assert "Nothing to remove" in stage.call("sweep", stage.spec, "--yes").stdout
    stage.json("run", stage.spec, "--window", hour(1))


def test_what_is_young_stays(stage: Stage, left: Path) -> None:
    """Files within the grace period are a running attempt's, as far as anybody can tell."""
    os.utime(left)
    assert stage.json("sweep", stage.spec, "--yes")["files"] == []
    assert left.exists()


@pytest.mark.parametrize(("grace", "says"), [("5m", "still staging"), ("soon", "must be a duration")])
def test_a_grace_period_that_cannot_be(stage: Stage, left: Path, grace: str, says: str) -> None:
    """One that is no duration, or shorter than runs take to stage, is refused before anything is looked at."""
    said = stage.json("sweep", stage.spec, "--older-than", grace, "--yes", code=2)["error"]["message"]
    assert says in said
    assert left.exists()
