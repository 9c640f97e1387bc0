"""Fixtures for Dagster in a temporary home directory, and for a pipeline in memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from tests.assets.world import World

HERE = Path(__file__).parent
DAGSTER_ITSELF = (
    "ignore::dagster.BetaWarning",  # backfill policies and observable sources, which windrow uses
    # from dagster-spark's own component, when the registry of components is read
    "ignore::dagster.PreviewWarning",
    "ignore::DeprecationWarning:dagster",  # Dagster warns about its own code
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignores the warnings that Dagster raises about itself; other warnings are errors."""
    for item in items:
        if item.path.is_relative_to(HERE):
            for warning_filter in DAGSTER_ITSELF:
                item.add_marker(pytest.mark.filterwarnings(warning_filter))


def instance_in(folder: Path) -> AbstractContextManager[dg.DagsterInstance]:
    """Returns an instance on disk, which a schedule can open by itself.

    It has one event log for all runs, because the tables of a log for each run take time to
    make.
    """
    log = {
        "module": "dagster.core.storage.event_log",
        "class": "ConsolidatedSqliteEventLogStorage",
        "config": {"base_dir": str(folder)},
    }
    return dg.instance_for_test({"event_log_storage": log}, temp_dir=str(folder))


@pytest.fixture(scope="session", autouse=True)
def migrations_once() -> Iterator[None]:
    """Loads the files of Dagster's migrations once; Dagster loads them for each database."""
    read, scripts = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def read_once(config: Config) -> ScriptDirectory:
        location = config.get_main_option("script_location")
        if location not in scripts:
            scripts[location] = read(config)
        return scripts[location]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", read_once)
        yield


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the empty databases of an instance.

    It takes longer than most tests to make their tables.
    """
    folder = tmp_path_factory.mktemp("fresh")
    with instance_in(folder) as empty_instance:
        empty_instance.get_runs()
        empty_instance.all_instigator_state()
    return folder


@pytest.fixture
def instance(fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """A copy of the instance with empty databases."""
    folder = tmp_path_factory.mktemp("instance")
    shutil.copytree(fresh, folder, dirs_exist_ok=True)
    with instance_in(folder) as copied_instance:
        yield copied_instance


@pytest.fixture
def world(tmp_path: Path, instance: dg.DagsterInstance) -> World:
    return World(tmp_path, instance)
