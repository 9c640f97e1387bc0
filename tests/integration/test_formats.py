"""Each format from real Kafka to a real table, by the command, on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.format_cases import CASES, HOUR, make_user, rows
from tests.registry.server import RegistryServer

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.some(6)
@pytest.mark.parametrize("name", CASES)
def test_from_a_topic_to_a_table(
    name: str, kafka: str, tmp_path: Path, schema_registry: RegistryServer
) -> None:
    """Each message is a row, or a dead letter with its stage and reason, and the table verifies."""
    case = CASES[name]
    user = make_user(case, kafka, tmp_path, schema_registry)
    user.types("run", "--window", HOUR)
    assert rows(user.folder) == case.rows
    dead = user.types("dead", "show")["dead"]
    assert sorted((d["stage"], d["reason"]) for d in dead) == case.dead
    assert user.types("verify", "--deep")["findings"] == []
