"""The commands of docs/install.md install windrow in an empty home folder and a new environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.newcomer import elsewhere, newcomer, other_terminal, shell, switched_on
from tests.shape.readme import ROOT, blocks, section

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("heading", ["With pip", "With uv"])
def test_a_project_gets_windrow_from_its_wheel(tmp_path: Path, heading: str) -> None:
    """The installed command works, accepts Java, and names the extras that aren't installed."""
    (typed,) = blocks("sh", section(heading, PAGE))
    output = shell(typed, tmp_path, newcomer(tmp_path))
    assert "ok   java" in output
    assert "windrow-ingest[" in output
    assert (tmp_path / "shop" / ".venv").is_dir()


@pytest.mark.broker
@pytest.mark.spark
def test_a_project_of_dg_gets_a_table(tmp_path: Path) -> None:
    """A project of `dg` gets a table.

    The component is listed in the project, a topic becomes a pipeline, and a partition is
    materialized.
    """
    env = newcomer(tmp_path)
    install, use = blocks("sh", section("In a project of `dg`", PAGE))
    assert "windrow.dagster.KafkaTable" in shell(install, tmp_path, env)
    shop = tmp_path / "shop"
    env = switched_on(shop / ".venv", env)
    _, run, produce, *_ = blocks("sh", section("Your first own table"))
    broker, produce, use = elsewhere([run, produce, use])
    with other_terminal(broker, tmp_path, env):
        shell(produce, shop, env)
        output = shell(f"exec 2>&1\n{use}", shop, env)
    assert "RUN_SUCCESS" in output
    assert list((shop / "src" / "shop" / "defs" / "payments" / "data").rglob("*.parquet"))
