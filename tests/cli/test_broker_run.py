"""`windrow broker run`: a real Kafka in the foreground."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient


@pytest.mark.broker
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_until_a_signal(tmp_path: Path, sign: signal.Signals) -> None:
    """It says where it answers once it does, and Ctrl-C or a supervisor's signal ends it with its broker."""
    command = [sys.executable, "-m", "ingest.cli.main", "broker", "run", "--folder", str(tmp_path / "kafka"), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        try:
            assert process.stdout is not None
            said = ""
            while not said.endswith("}\n"):
                line = process.stdout.readline()
                assert line, "it ended before the broker was up"
                said += line
            admin = AdminClient({"bootstrap.servers": json.loads(said)["bootstrap_servers"]})
            assert admin.list_topics(timeout=10).brokers
        finally:
            process.send_signal(sign)
        assert process.wait(60) == 0
    assert not (tmp_path / "kafka" / "broker.pid").exists()
