"""`windrow broker run`: a real Kafka in the foreground."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.commands import first_document


@pytest.mark.some(1)
@pytest.mark.broker
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_until_a_signal(tmp_path: Path, sign: signal.Signals) -> None:
    """It says where it answers once it does, and Ctrl-C or a supervisor's signal ends
    it with its broker.
    """
    command = [
        sys.executable,
        "-m",
        "windrow.ingest.cli.main",
        "broker",
        "run",
        "--folder",
        str(tmp_path / "kafka"),
        "--json",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as process:
        try:
            admin = AdminClient({"bootstrap.servers": first_document(process)["bootstrap_servers"]})
            assert admin.list_topics(timeout=10).brokers
        finally:
            process.send_signal(sign)
        assert process.wait(60) == 0
    assert not (tmp_path / "kafka" / "broker.pid").exists()
