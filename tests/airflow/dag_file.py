"""The tests' DAG file: one DAG for each pipeline, and DAGs like users write them."""

import os
import sys
from datetime import timedelta

from airflow.sdk import DAG, Asset, CronDataIntervalTimetable

from windrow_airflow import (
    WindrowCatchUpOperator,
    WindrowCompleteSensor,
    WindrowMaintainOperator,
    WindrowRunOperator,
    dags_from,
)

PIPELINES = os.environ["PIPELINES"]
HOW = {"command": [sys.executable, os.environ["STUB"]]}
NOW = {"retry_delay": timedelta(0)}

MORE = {"default_args": NOW, "params": {"mine": 1}, "tags": ["team"]}
globals().update(dags_from(PIPELINES, **HOW, kafka_conn_id="kafka_prod", **MORE))

with DAG("range", schedule=None):
    WindrowCatchUpOperator(
        task_id="run",
        spec=f"{PIPELINES}/hours/defs.yaml",
        window="2026-01-05T09:00:00Z/2026-01-05T10:00:00Z",
        outlets=[Asset("hours")],
        **HOW,
    )

with DAG("interval", schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC")):
    WindrowRunOperator(
        task_id="run", spec=f"{PIPELINES}/orders/defs.yaml", kafka_conn_id="kafka_prod", **HOW
    )

with DAG("nightly", schedule=None):
    WindrowMaintainOperator(task_id="run", spec=f"{PIPELINES}/maintained/defs.yaml", **HOW)

with DAG("aimless", schedule=None):
    WindrowRunOperator(task_id="run", spec=f"{PIPELINES}/orders/defs.yaml", **HOW)

with DAG("impatient", schedule=None, default_args=NOW):
    WindrowRunOperator(
        task_id="run",
        spec=f"{PIPELINES}/open/defs.yaml",
        window="2026-01-05T09:00:00Z",
        deferrable=False,
        retries=1,
        **HOW,
    )

for name in ("complete", "lost"):
    with DAG(f"waits_{name}", schedule=None):
        WindrowCompleteSensor(
            task_id="wait",
            spec=f"{PIPELINES}/{name}/defs.yaml",
            window="2026-01-05T09:00:00Z",
            poke_interval=0.1,
            kafka_conn_id="kafka_prod",
            **HOW,
        )

with DAG("real", schedule=None):
    WindrowRunOperator(
        task_id="run",
        spec=f"{PIPELINES}/orders/defs.yaml",
        window="2026-01-05T09:00:00Z",
        command=os.environ["WINDROW"],
    )

with DAG("nowhere", schedule=None):
    WindrowRunOperator(
        task_id="run", spec="defs.yaml", window="2026-01-05T09:00:00Z", command="/no/windrow"
    )
