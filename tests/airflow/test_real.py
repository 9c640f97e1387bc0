"""The real `windrow` as a process, and the document that Airflow's tasks read."""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.airflow.world import ROOT, SECRET
from tests.kafka.produce import Put, create_topic, produce
from windrow import load_spec, open_pipeline, read_receipts
from windrow.ingest.model.boundary import instant
from windrow_airflow.process import Ended, Process, keys, summary

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.spark]

START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
SPEC = """\
id: things
source: {bootstrap_servers: "{{ env.KAFKA_BOOTSTRAP_SERVERS }}", topic: TOPIC}
window: {grid: hourly, start: START, delay: 0s, max_wait: 0s}
decode: {schema: "things.py:Thing"}
sink: {kind: delta, path: ./things}
"""


def hour(n: int) -> str:
    return instant(START + timedelta(hours=n))


def test_a_tick_commits_what_is_due(
    tmp_path: Path, kafka: str, spark_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick's command commits all due hours except the refused one, and reports them.

    The next tick reports its own hour only. The refused hour's own run reports the refusal.
    """
    topic = create_topic(kafka)
    first = int(START.timestamp() * 1000)
    puts = [Put(b'{"id": 1, "name": "x"}', first + n * 1_200_000) for n in range(15)]
    puts[4:4] = [Put(b"poison", first + 3_600_001) for _ in range(9)]
    produce(kafka, topic, puts)
    shutil.copy(ROOT / "tests" / "integration" / "things.py", tmp_path)
    spec = tmp_path / "things.yaml"
    spec.write_text(SPEC.replace("TOPIC", topic).replace("START", hour(0)))
    log_lines = list[str]()

    def run(window: str, *options: str) -> Ended:
        windrow = str(Path(sys.executable).parent / "windrow")
        words = [windrow, "run", str(spec), "--window", window, "--connect", spark_server]
        env = {"KAFKA_BOOTSTRAP_SERVERS": kafka, "KAFKA_SASL_PASSWORD": SECRET}
        return Process([*words, *options], env).run(log_lines.append)

    ended = run(hour(4), "--due", "--request", "tick")
    assert (ended.code, keys(ended.document)) == (1, [hour(n) for n in (0, 2, 3, 4)]), log_lines
    assert hour(1) in ended.message
    assert any("Reading" in line for line in log_lines), "its log"
    figures = summary(ended.document)
    assert (figures["pipeline"], figures["windows"], figures["recovered"]) == ("things", 4, 0)
    assert (figures["messages"], figures["rows"], figures["dead_letters"]) == (12, 12, 0)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka)
    receipts = [committed.receipt for committed in read_receipts(open_pipeline(load_spec(spec)))]
    assert sorted(receipt.window.key for receipt in receipts) == keys(ended.document)

    ended = run(hour(4), "--due")
    assert (ended.code, keys(ended.document)) == (0, [hour(4)])
    assert summary(ended.document)["recovered"] == 1
    assert (run(hour(1)).code, keys(run(hour(1)).document)) == (1, [])
    early = run(hour(5), "--due")
    assert (early.code, early.document["error"]["until"]) == (4, hour(6))
