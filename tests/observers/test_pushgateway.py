"""Metrics at a real Pushgateway from the system's packages."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.bench.harness.environments import debian, environment_folder
from tests.cli.test_metrics import samples
from windrow.ingest.kafka.embedded.server import free_port
from windrow.ingest.observers.prometheus import Prometheus


@pytest.mark.long
def test_a_real_pushgateway_adds_up(tmp_path: Path) -> None:
    """The metrics of two processes of a pipeline add up, beside another pipeline's."""
    program = (
        environment_folder("pushgateway", Path(__file__).parent, debian)
        / "usr/bin/prometheus-pushgateway"
    )
    url = f"127.0.0.1:{free_port()}"
    with subprocess.Popen(
        [program, f"--web.listen-address={url}"], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            while f"address={url}" not in (line := process.stderr.readline()):
                assert line, "it ended before it was up"
            for pipeline in ("things", "things", "others"):
                observer = Prometheus(pipeline, f"http://{url}")
                observer.see("windrow_rows_total", 4)
                observer.see("windrow_lag_records", 7, "shop.things")
                observer.report()
            with urlopen(f"http://{url}/metrics", timeout=30) as response:
                text = response.read().decode()
        finally:
            process.terminate()
            process.wait(60)
    assert samples(text)["windrow_rows_total", ""] == 8
    assert samples(text)["windrow_lag_records", "shop.things"] == 7
    assert samples(text, pipeline="others")["windrow_rows_total", ""] == 4
