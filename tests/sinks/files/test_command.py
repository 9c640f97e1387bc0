"""The command on a table of files."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Stage, hour, stage

__all__ = ["stage"]

pytestmark = pytest.mark.slow  # its dead letters are a Delta table


def test_a_file_that_is_gone_or_changed_is_found(stage: Stage) -> None:
    """verify --deep names the window and the damage, and quotes nothing of the file's content."""
    stage.sink("{kind: files, path: lake/things, format: jsonl, compression: none}")
    stage.json("run", stage.spec, "--window", hour(0))
    file = next((stage.folder / "lake" / "things" / "data").rglob("*.jsonl"))
    good = file.read_bytes()
    for bad, says in (
        (good.replace(b'"id":', b'"id":7', 1), "not those that were committed"),
        (b"secret", "damaged"),
        (None, "gone"),
    ):
        if bad is None:
            file.unlink()
        else:
            file.write_bytes(bad)
        finding, *_ = stage.json("verify", stage.spec, "--deep", code=1)["findings"]
        assert says in finding["what"]
        assert "secret" not in str(finding)


def test_another_format_is_another_table(stage: Stage) -> None:
    """A spec with another format is refused, and the error names the table's format."""
    stage.sink("{kind: files, path: lake/things}")
    stage.json("run", stage.spec, "--window", hour(0))
    stage.sink("{kind: files, path: lake/things, format: jsonl}")
    message = stage.json("run", stage.spec, "--window", hour(1), code=2)["error"]["message"]
    assert "was begun with parquet files" in message
