"""Dagster without a home, and a pipeline in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.assets.world import World

HERE = Path(__file__).parent
DAGSTER_ITSELF = (
    "ignore::dagster.BetaWarning",  # backfill policies and observable sources, which we want
    "ignore::dagster.PreviewWarning",  # of dagster-spark's own component, met when the registry is read
    "ignore::DeprecationWarning:dagster",  # Dagster warns of its own use of itself
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings are errors, but not those that Dagster raises against itself."""
    for item in items:
        if item.path.is_relative_to(HERE):
            for each in DAGSTER_ITSELF:
                item.add_marker(pytest.mark.filterwarnings(each))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """One on disk: a schedule opens its own."""
    with dg.instance_for_test() as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, instance: dg.DagsterInstance) -> World:
    return World(tmp_path, instance)
