"""docs/connect.md: each command and each call of Dagster's API does what the page says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.conftest import TopicFactory
from tests.integration.newcomer import OURS, SECONDS, switched_on
from tests.kafka.produce import Put, produce
from tests.shape.readme import ROOT

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.long,
]

PAGE = (ROOT / "docs" / "connect.md").read_text(encoding="utf-8")
PORT = "3000"
"""The port on the page."""

CODED = re.compile(r"^(.*?) +# exit code (\d+)$", re.MULTILINE)
"""A command with another exit code than 0."""

SAID = {
    "Status": ["'numPartitions'", "'STOPPED'", "Nothing is committed yet"],
    "Pause": ["is paused by ann since .*: the broker moves", "'LaunchRunSuccess'", "'FAILURE'"],
    "Resume": ["Pipeline payments was resumed by .*: it has moved"],
    "Restart": ["'LaunchRunSuccess'", "'SUCCESS'", "09:00:00Z: committed already"],
    "Offsets": ["'label': 'offsets'", r'"start": 0', r'"stop": 3'],
    "Altering offsets": ["There is nothing to rebase"],
    "Resetting offsets": ["09:00:00Z: replaced"],
    "Validating a configuration": ["'WorkspaceLocationEntry'", "sink +the table is payments's"],
    "Plugins": ["windrow.dagster.KafkaTable", "sink.kind: .*delta"],
    "Log levels": ["10:00:00Z: replaced"],
}
"""Texts in the output of each heading's commands."""

SPEC = """\
type: windrow.dagster.KafkaTable
attributes:
  id: payments
  source: {{bootstrap_servers: "{broker}", topic: {topic}}}
  window: {{grid: hourly, start: 2026-01-05T09:00:00Z, delay: {delay}m}}
  decode: {{schema: "things.py:Thing"}}
  sink: {{kind: delta, path: ./lake/payments}}
"""
DEFINITIONS = """\
from pathlib import Path

import dagster as dg
from windrow import load_spec
from windrow.dagster import kafka_table

spec = load_spec(Path(__file__).parent / "payments" / "defs.yaml")
defs = dg.Definitions.merge(kafka_table(spec), dg.Definitions(executor=dg.in_process_executor))
"""


def pipeline(folder: Path, broker: str, topic: str) -> None:
    """Writes a pipeline's files, and produces four hours with three messages each.

    The schedule's next tick is half an hour away.
    """
    (folder / "payments").mkdir()
    (folder / "dagster_home").mkdir()
    (folder / "dagster_home" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    delay = (datetime.now(UTC).minute + 30) % 60
    spec = SPEC.format(broker=broker, topic=topic, delay=delay)
    (folder / "payments" / "defs.yaml").write_text(spec)
    (folder / "payments" / "none.yaml").write_text(spec.replace("kind: delta", "kind: none"))
    shutil.copy(ROOT / "tests" / "integration" / "things.py", folder / "payments")
    (folder / "definitions.py").write_text(DEFINITIONS)
    first = int(datetime(2026, 1, 5, 9, tzinfo=UTC).timestamp() * 1000)
    timestamps = [first + (20 * n + 1) * 60_000 for n in range(12)]
    produce(
        broker, topic, [Put(b'{"id": %d, "name": null}' % n, t) for n, t in enumerate(timestamps)]
    )


@contextmanager
def dagster(folder: Path, port: str, env: dict[str, str]) -> Iterator[None]:
    """Runs `dagster dev` inside the block, once its webserver answers."""
    command = ["dagster", "dev", "-f", "definitions.py", "--port", port]
    with (
        (folder / "dev.log").open("w") as log,
        subprocess.Popen(
            command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        try:
            late = time.monotonic() + SECONDS
            while not answers(port):
                assert process.poll() is None, (folder / "dev.log").read_text()
                assert time.monotonic() < late, (folder / "dev.log").read_text()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def answers(port: str) -> bool:
    """Returns whether the webserver answers."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/server_info", timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def sections(page: str) -> Iterator[tuple[str, str]]:
    """Yields the headings of the page with their commands; exit codes other than 0 are checked."""
    for part in page.split("\n## "):
        commands = "".join(re.findall(r"^```sh\n(.*?)^```", part, re.DOTALL | re.MULTILINE))
        coded = CODED.sub(r"code=0; \1 || code=$?; [ $code = \2 ]", commands)
        yield part.partition("\n")[0], coded


def test_the_page_is_true(kafka: str, topic: TopicFactory, tmp_path: Path) -> None:
    """All commands of the page, run in order with a real webserver, end as the page says.

    The output below each heading has the expected texts.
    """
    pipeline(tmp_path, kafka, topic())
    env = {name: value for name, value in os.environ.items() if name not in OURS}
    env = switched_on(Path(sys.prefix), env) | {"DAGSTER_HOME": str(tmp_path / "dagster_home")}
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    parts = [(name, commands) for name, commands in sections(PAGE) if commands]
    script = "\n".join(f"echo {shlex.quote(f'=== {name}')}\n{commands}" for name, commands in parts)
    with dagster(tmp_path, port, env):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"exec 2>&1\n{script.replace(PORT, port)}"],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=1500,
        )
    output_by_heading = dict(part.split("\n", 1) for part in done.stdout.split("=== ")[1:])
    assert done.returncode == 0, done.stdout[-6000:]
    assert SAID.keys() <= output_by_heading.keys()
    for heading, expected in SAID.items():
        for words in expected:
            assert re.search(words, output_by_heading[heading]), (
                heading,
                words,
                output_by_heading[heading],
            )
