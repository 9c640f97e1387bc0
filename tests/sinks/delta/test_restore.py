"""A Delta table that was restored to an older version: its log still names windows whose rows
are gone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.cli.conftest import Stage, hour, stage

__all__ = ["stage"]

pytestmark = pytest.mark.slow


def test_a_table_that_was_restored_is_made_whole_by_replays(stage: Stage) -> None:
    """After Delta's RESTORE, verify names each window whose rows are gone, and a replay brings
    the rows back.

    RESTORE doesn't take receipts back, so a run finds the window committed.
    """
    for number in (0, 1):
        stage.json("run", stage.spec, "--window", hour(number))
    table = DeltaTable(stage.folder / "lake" / "things")
    table.restore(table.version() - 1)
    assert stage.json("run", stage.spec, "--window", hour(1))["windows"][0]["recovered"] is True
    findings = stage.json("verify", stage.spec, code=1)["findings"]
    assert {finding["window"] for finding in findings if finding["level"] == "wrong"} == {hour(1)}
    assert all(
        "windrow replay" in finding["do"] and "reads the window again" in finding["do"]
        for finding in findings
    )
    stage.json("replay", stage.spec, "--window", hour(1))
    assert stage.json("verify", stage.spec, "--deep")["findings"] == []


def test_a_table_with_a_primary_key_is_set_forward_again(stage: Stage) -> None:
    """In a restored table with a primary key, verify reports that receipts and rows differ
    until the newest version is restored.

    No replay can bring its rows back.
    """
    spec = Path(stage.spec)
    spec.write_text(
        spec.read_text().replace(
            "{path: lake/things}", "{path: lake/things, mode: upsert, primary_key: [id]}"
        )
    )
    stage.produce(5, b'{"id": 2}', b'{"id": 77}')
    for number in (0, 5):
        stage.json("run", stage.spec, "--window", hour(number))
    table = DeltaTable(stage.folder / "lake" / "things")
    newest = table.version()
    table.restore(newest - 1)
    messages = [
        finding["what"]
        for finding in stage.json("verify", stage.spec, code=1)["findings"]
        if finding["level"] == "wrong"
    ]
    assert messages == ["4 rows in the table, 5 by its receipts (added less removed)"]
    table.update_incremental()
    table.restore(newest)
    findings = stage.json("verify", stage.spec, "--deep")["findings"]
    assert [finding["level"] for finding in findings] == ["info"]
