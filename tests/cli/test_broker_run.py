"""`windrow broker run`: a real Kafka in the foreground."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.command import run_command
from tests.commands import first_document
from windrow.ingest.kafka.embedded import server
from windrow.ingest.kafka.embedded.server import EmbeddedBroker


def test_a_port_that_is_taken_is_told_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that is in use is reported before Kafka is downloaded, which takes minutes."""
    fetched = list[str]()
    monkeypatch.setattr(server, "find_jars", lambda: fetched.append("") or tmp_path)
    monkeypatch.setattr(server, "java_problem", lambda: None)
    with socket.socket() as busy_socket:
        busy_socket.bind(("127.0.0.1", 0))
        busy_socket.listen()
        port = str(busy_socket.getsockname()[1])
        words = ["broker", "run", "--folder", str(tmp_path / "kafka"), "--port", port]
        done = run_command(*words)
    assert (done.exit_code, fetched) == (3, [])
    assert f"Port {port} on 127.0.0.1, which the broker of" in done.output


@pytest.mark.some(1)
@pytest.mark.broker
@pytest.mark.parametrize(
    ("end", "code", "expected_text"),
    [
        (signal.SIGINT, 0, ""),
        (signal.SIGTERM, 0, ""),
        ("as advised", 3, "Kafka ended, and not by Ctrl-C here"),
        ("by stop", 0, "Another program has stopped this Kafka."),
    ],
)
def test_until_it_is_ended(
    tmp_path: Path, end: signal.Signals | str, code: int, expected_text: str
) -> None:
    """The command prints its address when Kafka answers, and ends with its broker.

    Ctrl-C, a supervisor's signal, or another program ends it, and it says which. A second
    command in the same folder is refused, and its advice ends the first one.
    """
    kafka = tmp_path / "kafka"
    command = [sys.executable, "-m", "windrow.ingest.cli.main", "broker", "run"]
    command += ["--folder", str(kafka), "--json"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        try:
            address = first_document(process)["bootstrap_servers"]
            second = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=60
            )
            assert second.returncode == 2
            says = f"A Kafka of {kafka} runs already, and answers on {address}"
            match = re.search(re.escape(says) + r"\. Use it, .* or kill (\d+)\.", second.stderr)
            assert match is not None
            assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).brokers
            if end == "as advised":
                os.kill(int(match[1]), signal.SIGTERM)
            elif end == "by stop":
                EmbeddedBroker(kafka, tmp_path).stop()
            else:
                process.send_signal(int(end))
            _, errors = process.communicate(timeout=60)
        finally:
            process.send_signal(signal.SIGTERM)
    assert (process.returncode, expected_text in errors) == (code, True)
    assert not (kafka / "broker.pid").exists()
