"""The page's two commands, run as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.airflow.world import PAGE, PLACE, ROOT, environment, install, write_page
from tests.kafka.produce import Put, create_topic, produce
from tests.shape.readme import blocks
from windrow import load_spec, open_pipeline, read_receipts

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.broker]

SPEC = """\
id: payments
source: {bootstrap_servers: BROKER, topic: TOPIC}
window: {grid: hourly, start: 2026-01-05T00:00:00Z}
decode: {schema: "things.py:Thing"}
sink: {kind: delta, path: ./payments}
"""
UV_AS_PIP = """\
#!/bin/sh
shift
exec UV pip install --quiet --no-deps --no-build-isolation --python VENV "$@"
"""


def test_two_commands_to_a_green_dag(tmp_path: Path, kafka: str) -> None:
    """The page's commands install the provider and commit a window with the page's DAG file."""
    install()
    topic, home = create_topic(kafka), tmp_path / "airflow"
    eleven = 1_767_610_800_000
    puts = [Put(b'{"id": %d, "name": "x"}' % n, eleven + n * 600_000) for n in range(7)]
    produce(kafka, topic, puts)
    spec = tmp_path / "pipelines" / "payments" / "defs.yaml"
    spec.parent.mkdir(parents=True)
    spec.write_text(SPEC.replace("BROKER", kafka).replace("TOPIC", topic))
    shutil.copy(ROOT / "tests" / "integration" / "things.py", spec.parent)
    env = environment(home)
    shutil.rmtree(home / "dags")
    windrow = str(Path(sys.executable).parent / "windrow")
    write_page(home / "dags", spec.parents[1], windrow)

    # an environment with Airflow's packages, but without windrow's provider
    bin_of = {**env, "VIRTUAL_ENV": ""}
    uv, venv = str(Path(sys.executable).parent / "uv"), tmp_path / "venv"
    subprocess.run(
        [uv, "venv", "--quiet", "--python", sys.executable, venv], check=True, timeout=60
    )
    (packages,) = venv.glob("lib/python*/site-packages")
    (others,) = PLACE.glob("lib/python*/site-packages")
    (packages / "airflow.pth").write_text(f"import site; site.addsitedir({str(others)!r})\n")
    scripts = {
        "pip": UV_AS_PIP.replace("UV", uv).replace("VENV", str(venv)),
        "airflow": f'#!/bin/sh\nexec {venv}/bin/python -m airflow "$@"\n',
    }
    for name, text in scripts.items():
        (venv / "bin" / name).write_text(text)
        (venv / "bin" / name).chmod(0o755)
    commands = next(text for text in blocks("sh", PAGE) if "pip install" in text)
    done = subprocess.run(
        ["sh", "-euc", commands],
        cwd=ROOT,
        env={**bin_of, "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (receipt,) = (committed.receipt for committed in read_receipts(open_pipeline(load_spec(spec))))
    assert (receipt.window.key, receipt.counts.rows) == ("2026-01-05T11:00:00Z", 6)
    assert list(packages.glob("airflow_provider_windrow-*")), "it was installed"
