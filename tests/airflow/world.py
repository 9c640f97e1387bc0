"""Airflow in its own environment, and pipelines with a stub of `windrow`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.shape.readme import blocks

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".windrow" / "airflow"
STUB = Path(__file__).parent / "stub.py"
PAGE = (ROOT / "docs" / "airflow.md").read_text(encoding="utf-8")
SECRET = "hush-hush-hush"
NINE, TEN = "2026-01-05T09:00:00Z", "2026-01-05T10:00:00Z"


def install() -> None:
    """Makes Airflow's environment, if it doesn't exist."""
    subprocess.run([ROOT / ".ci" / "airflow"], check=True, timeout=540)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Returns the environment variables of a new Airflow in a folder, with its DAGs in `dags`."""
    (home / "dags").mkdir(parents=True, exist_ok=True)
    shutil.copy(PLACE / "empty" / "airflow.db", home)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    kafka = {"bootstrap.servers": "127.0.0.1:9092", "sasl.password": SECRET}
    return {
        **ours,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_CONN_KAFKA_PROD": json.dumps({"conn_type": "kafka", "extra": kafka}),
        "PIPELINES": str(home / "pipelines"),
        "STUB": str(STUB),
        **more,
    }


def pipeline(
    home: Path,
    name: str,
    *answers: Any,
    window: str = "{grid: hourly, start: 2026-01-05T00:00:00Z}",
) -> Path:
    """Writes a pipeline's file, and the stub's answers to one call after the other."""
    folder = home / "pipelines" / name
    folder.mkdir(parents=True)
    (folder / "answers.json").write_text(json.dumps(answers))
    (folder / "defs.yaml").write_text(
        f"type: windrow.dagster.KafkaTable\nattributes:\n  id: {name}\n  source: {{topic: shop}}\n"
        f"  window: {window}\n"
    )
    return folder / "defs.yaml"


def calls(spec: Path) -> list[dict[str, Any]]:
    """Returns the recorded calls of the stub for a pipeline."""
    noted = spec.parent / "calls.jsonl"
    return [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []


def commit_reply(*starts: str | int) -> dict[str, Any]:
    """Returns an answer in which these windows are committed."""
    counts = {"read": 11, "rows": 10, "dead": 1, "skipped": 0, "late": 0}
    receipts = [
        {"plan": {"window": {"start": start}}, "digest": "d", "generation": 0, "counts": counts}
        for start in starts
    ]
    windows = [
        {"committed": {"receipt": receipt, "version": 3}, "recovered": False}
        for receipt in receipts
    ]
    return {"document": {"pipeline": "shop", "windows": windows}}


def failure_reply(code: int, **more: Any) -> dict[str, Any]:
    """Returns an answer in which windrow ends with this exit code."""
    return {"code": code, "document": {"error": {"message": f"It is {code}. Do this.", **more}}}


def write_page(folder: Path, pipelines: Path, windrow: str = "windrow") -> None:
    """Writes the page's DAG files, with the paths of these pipelines and of this command."""
    folder.mkdir()
    for text in blocks("python", PAGE):
        named = re.match(r"# dags/(\w+\.py)\n", text)
        if named is not None:
            placed = text.replace("/opt/pipelines", str(pipelines))
            (folder / named[1]).write_text(placed.replace("/opt/windrow/bin/windrow", windrow))
