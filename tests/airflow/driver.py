"""Loads DAGs and runs them by `DAG.test`, in Airflow's environment: one process for all, which
prints what it found as JSON.

Its arguments: the DAG file; the folder of the page's DAG files; a folder of folders that hold no
good pipelines; and `DAG_ID=CONF` for each run.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def loaded(dags: dict[str, Any], broken: Path) -> dict[str, Any]:
    """What the DAGs are, which modules they needed, and what is said of mistakes."""
    from windrow_airflow import dags_from

    mistakes = {}
    for folder in broken.iterdir():
        try:
            dags_from(folder)
        except ValueError as error:
            mistakes[folder.name] = str(error)
    return {
        "dags": {
            name: [
                getattr(dag.timetable, "expression", ""),
                str(dag.start_date),
                sorted(dag.tags),
                dag.catchup,
            ]
            for name, dag in dags.items()
        },
        "modules": sorted({name.partition(".")[0] for name in sys.modules}),
        "mistakes": mistakes,
    }


def run(dag: Any, conf: str) -> dict[str, Any]:
    """A run's state, its task's tries, what it returned, and the events of assets."""
    from airflow import settings
    from airflow.models.asset import AssetEvent
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    at = datetime(2026, 1, 5, 8, tzinfo=UTC) if dag.dag_id == "interval" else None
    done = dag.test(logical_date=at, run_conf=json.loads(conf or "{}"))
    with settings.Session() as session:
        (task,) = done.get_task_instances(session=session)
        of_run = {"dag_id": done.dag_id, "run_id": done.run_id}
        returned = session.scalar(select(XComModel).filter_by(**of_run, key="return_value"))
        events = session.scalars(
            select(AssetEvent).filter_by(source_dag_id=done.dag_id, source_run_id=done.run_id)
        )
        return {
            "dag": done.dag_id,
            "run": str(done.state),
            "task": str(task.state),
            "tries": task.try_number,
            "returned": returned and XComModel.deserialize_value(returned),
            "events": sorted(([each.partition_key, each.extra] for each in events), key=str),
        }


def main() -> None:
    from airflow.dag_processing.dagbag import DagBag

    file, page, broken, *runs = sys.argv[1:]
    bag, of_page = DagBag(file), DagBag(page)
    assert not bag.import_errors | of_page.import_errors, (bag.import_errors, of_page.import_errors)
    found = loaded(bag.dags, Path(broken)) | {"page": sorted(of_page.dags)}
    ran = [run(bag.dags[name], conf) for name, _, conf in (text.partition("=") for text in runs)]
    print(json.dumps({**found, "runs": ran}))


if __name__ == "__main__":
    logging.captureWarnings(True)
    main()
