"""`windrow sweep`: files left by runs are shown, and removed only with --yes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Stage, hour


@pytest.fixture
def orphans(stage: Stage) -> list[Path]:
    """Two old files that no commit names: one in the table and one in that of the dead letters.

    The table has a committed window.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    for committed in (stage.folder / "lake").rglob("*.parquet"):
        os.utime(committed, (1_000_000_000, 1_000_000_000))
    orphans = [
        stage.folder / "lake" / table / "data" / "_window=2026-01-05T00%3A00%3A00Z" / "died.parquet"
        for table in ("things", "things_dead")
    ]
    for orphan in orphans:
        orphan.write_bytes(b"rows")
        os.utime(orphan, (1_000_000_000, 1_000_000_000))
    return orphans


def test_it_shows_and_removes_nothing(stage: Stage, orphans: list[Path]) -> None:
    """Without --yes, the files are listed and stay."""
    assert stage.json("sweep", stage.spec) == {
        "pipeline": "things",
        "files": [str(path) for path in orphans],
        "removed": False,
    }
    assert (
        "Nothing was removed; add --yes to remove 2 files."
        in stage.call("sweep", stage.spec).stdout
    )
    assert all(path.exists() for path in orphans)


def test_it_removes_what_no_commit_names(stage: Stage, orphans: list[Path]) -> None:
    """With --yes, the files are removed, and the committed rows and dead letters stay."""
    assert stage.json("sweep", stage.spec, "--yes") == {
        "pipeline": "things",
        "files": [str(path) for path in orphans],
        "removed": True,
    }
    assert not any(path.exists() for path in orphans)
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []
    assert "Nothing to remove" in stage.call("sweep", stage.spec, "--yes").stdout
    stage.json("run", stage.spec, "--window", hour(1))


def test_what_is_young_stays(stage: Stage, orphans: list[Path]) -> None:
    """Files within the grace period stay, because they may belong to a running attempt."""
    for path in orphans:
        os.utime(path)
    assert stage.json("sweep", stage.spec, "--yes")["files"] == []
    assert all(path.exists() for path in orphans)


@pytest.mark.parametrize(
    ("grace", "says"), [("5m", "still staging"), ("soon", "must be a duration")]
)
def test_a_grace_period_that_cannot_be(stage: Stage, orphans: Path, grace: str, says: str) -> None:
    """A grace period that is invalid or too short is refused before any file is listed."""
    message = stage.json("sweep", stage.spec, "--older-than", grace, "--yes", code=2)["error"][
        "message"
    ]
    assert says in message
    assert all(path.exists() for path in orphans)
