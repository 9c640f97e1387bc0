"""Runs by Dagster on real Kafka and a real Delta table, at the same time or killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.assets.processes import dagster_run, five_hours, make_dagsters_tables, receipts_shown
from tests.integration.harness import (
    PipelineSetup,
    read_visible,
    table_version,
    verdict,
    wait_until_stopped,
    wake_to_the_end,
)

pytestmark = pytest.mark.broker


@pytest.fixture
def setup(kafka: str, tmp_path: Path) -> PipelineSetup:
    """A pipeline with five hours of messages; Dagster's home is in the same folder."""
    make_dagsters_tables(tmp_path)
    return PipelineSetup(kafka, five_hours(kafka), tmp_path)


def test_two_dagster_runs_of_one_window(setup: PipelineSetup) -> None:
    """Two runs of one window both succeed: one commits, and the other shows its receipt.

    1. Both stop right before their commit.
    2. Both continue.
    """
    runs = [dagster_run(setup, setup.folder, 1, 1, "commit.before:stop") for _ in range(2)]
    for run in runs:
        wait_until_stopped(run)
    wake_to_the_end(runs, 120)
    shown = receipts_shown(setup, setup.folder, 1)
    assert len({attempt for attempt, _ in shown}) == 1
    assert sorted(recovered for _, recovered in shown) == [False, True]


@pytest.mark.long
def test_a_killed_range_leaves_its_finished_windows_green(setup: PipelineSetup) -> None:
    """A run that is killed after its second window's commit leaves that window in the table.

    A second run of the whole range shows that window as recovered, and writes the rest.
    """
    first = dagster_run(setup, setup.folder, 1, 1)
    first.join(120)
    killed = dagster_run(setup, setup.folder, 1, 5, "commit.after:kill")
    killed.join(120)
    assert killed.exitcode == -signal.SIGKILL
    assert receipts_shown(setup, setup.folder, 1)[0][1], "the first window was there before"
    assert receipts_shown(setup, setup.folder, 2) == [], "its commit is in, its report is not"
    version_before = table_version(setup)
    rerun = dagster_run(setup, setup.folder, 1, 5)
    rerun.join(240)
    assert rerun.exitcode == 0
    assert table_version(setup) == version_before + 3
    assert [receipts_shown(setup, setup.folder, n)[0][1] for n in range(1, 6)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    report = verdict(setup, read_visible(setup.bootstrap, setup.topic))
    assert report.ok, report
