"""From a topic on real Kafka to a first table, by the files that `windrow init` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from ingest.assemble import assemble
from ingest.cli import running
from ingest.cli.main import app
from ingest.testing.engine import LocalEngine
from tests.integration.harness import millis
from tests.kafka.produce import Put, create_topic, produce

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("stamped", [True, False], ids=["hours", "batches"])
def test_a_topic_becomes_a_table_without_an_edit(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stamped: bool) -> None:
    """What init writes for a topic is planned and run as it is: by the hour where one is over, else at once as a micro-batch."""
    monkeypatch.setattr(running, "assemble", lambda spec, _: assemble(spec, LocalEngine()))
    topic = create_topic(kafka, partitions=2)
    values = [{"id": i, "class": "x", "at": "2026-01-05T01:00:00Z", "to": {"zip": None if i % 2 else i}} for i in range(40)]
    produce(kafka, topic, [Put(json.dumps(v).encode(), millis(1, v["id"]) if stamped else None, v["id"] % 2) for v in values])
    runner = CliRunner()
    made = runner.invoke(app, ["init", str(tmp_path / "new"), "--bootstrap", kafka, "--topic", topic])
    assert made.exit_code == 0, made.output
    assert "guessed from 40 messages" in made.stdout
    assert "of which 40 fit" in made.stdout
    commands = [line.split()[1:] for line in made.stdout.splitlines() if line.startswith("  windrow ")]
    assert [words[0] for words in commands] == ["plan", "run"]
    for words in commands:
        result = runner.invoke(app, words)
        assert result.exit_code == 0, result.output
    (table,) = [path for path in (tmp_path / "new" / "data").iterdir() if not path.name.endswith("_dead")]
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["id", "class"])
    assert sorted(rows["id"].to_pylist()) == list(range(40))
