"""Dagster without a home, and a pipeline in memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import dagster as dg
import pytest

from tests.assets.world import World

HERE = Path(__file__).parent
DAGSTER_ITSELF = (
    "ignore::dagster.BetaWarning",  # backfill policies and observable sources, which we want
    # of dagster-spark's own component, met when the registry is read
    "ignore::dagster.PreviewWarning",
    "ignore::DeprecationWarning:dagster",  # Dagster warns of its own use of itself
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings are errors, but not those that Dagster raises against itself."""
    for item in items:
        if item.path.is_relative_to(HERE):
            for warning_filter in DAGSTER_ITSELF:
                item.add_marker(pytest.mark.filterwarnings(warning_filter))


def instance_in(folder: Path) -> AbstractContextManager[dg.DagsterInstance]:
    """One on disk, for a schedule opens its own; with one event log for all runs: each
    run's own would first have to be made.
    """
    log = {
        "module": "dagster.core.storage.event_log",
        "class": "ConsolidatedSqliteEventLogStorage",
        "config": {"base_dir": str(folder)},
    }
    return dg.instance_for_test({"event_log_storage": log}, temp_dir=str(folder))


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an instance's empty databases: to make their tables takes longer
    than most tests.
    """
    folder = tmp_path_factory.mktemp("fresh")
    with instance_in(folder) as empty_instance:
        empty_instance.get_runs()
        empty_instance.all_instigator_state()
    return folder


@pytest.fixture
def instance(fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """A copy of the fresh one."""
    folder = tmp_path_factory.mktemp("instance")
    shutil.copytree(fresh, folder, dirs_exist_ok=True)
    with instance_in(folder) as copied_instance:
        yield copied_instance


@pytest.fixture
def world(tmp_path: Path, instance: dg.DagsterInstance) -> World:
    return World(tmp_path, instance)
