"""Loads DAGs and runs them with `DAG.test` in Airflow's environment, and prints a JSON report.

One process runs all of them. Its arguments are the DAG file, the folder of the page's DAG
files, a folder of folders with wrong pipelines, and `DAG_ID=CONF` for each run.
"""

import asyncio
import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def describe_loaded(dags: dict[str, Any], broken: Path) -> dict[str, Any]:
    """Returns the DAGs' attributes, the loaded modules, and the messages about wrong pipelines."""
    from windrow_airflow import dags_from

    mistakes, imports_by_folder = {}, {}
    for folder in broken.iterdir():
        try:
            dags_of_folder = dags_from(folder)
        except ValueError as error:
            mistakes[folder.name] = str(error)
        else:
            imports_by_folder[folder.name] = import_errors_of(dags_of_folder)
    return {
        "alone": imports_by_folder,
        "unstartable": asyncio.run(first_event(["/no/windrow", "state"])),
        "ticks": ticks(dags["orders"].get_task("run")),
        "dags": {
            name: [
                getattr(dag.timetable, "expression", ""),
                str(dag.start_date),
                sorted(dag.tags),
                dag.catchup,
                getattr(dag.timetable, "run_offset", None),
                sorted(dag.params),
            ]
            for name, dag in dags.items()
        },
        "modules": sorted({name.partition(".")[0] for name in sys.modules}),
        "mistakes": mistakes,
    }


def import_errors_of(dags: dict[str, Any]) -> list[Any]:
    """Returns the ids of the DAGs that Airflow's processor accepts, and its import
    errors by file.
    """
    import structlog
    from airflow.dag_processing.processor import _serialize_dags

    bag: Any = SimpleNamespace(dags=dags)
    good, errors = _serialize_dags(bag, structlog.get_logger())
    return [sorted(dag.dag_id for dag in good), errors]


async def first_event(words: list[str]) -> Any:
    """Returns the payload of the last event of the sensor's trigger."""
    from windrow_airflow.triggers import WindrowCompleteTrigger

    return (await anext(WindrowCompleteTrigger(words, {}, None, 0).run())).payload


def ticks(task: Any) -> dict[str, list[str]]:
    """Returns the words and the request of a task by the run's kind and its number of clearings."""
    words_by_run = {}
    for kind, cleared in (("scheduled", 0), ("scheduled", 1), ("manual", 0), ("backfill", 0)):
        ti = SimpleNamespace(dag_id="d", run_id="r", task_id="run", map_index=-1)
        run = SimpleNamespace(run_type=kind, clear_number=cleared)
        context = {"params": {}, "partition_key": "KEY", "dag_run": run, "ti": ti}
        task.verb = "run"
        words_by_run[f"{kind} {cleared}"] = [*task.words(context), task.request(context)]
    return words_by_run


def run(dag: Any, conf: str) -> dict[str, Any]:
    """Runs a DAG, and returns its state, the tries and result of its task, and its asset events."""
    from airflow import settings
    from airflow.models.asset import AssetEvent
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    logical_date = datetime(2026, 1, 5, 8, tzinfo=UTC) if dag.dag_id == "interval" else None
    done = dag.test(logical_date=logical_date, run_conf=json.loads(conf or "{}"))
    with settings.Session() as session:
        tasks = {task.task_id: task for task in done.get_task_instances(session=session)}
        task = tasks.pop("run", None) or tasks.pop("wait")
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
            "others": {name: str(ti.state) for name, ti in tasks.items()},
            "returned": returned and XComModel.deserialize_value(returned),
            "events": sorted(([event.partition_key, event.extra] for event in events), key=str),
        }


def main() -> None:
    from airflow.dag_processing.dagbag import DagBag

    file, page, broken, *runs = sys.argv[1:]
    bag, of_page = DagBag(file), DagBag(page)
    assert not bag.import_errors | of_page.import_errors, (bag.import_errors, of_page.import_errors)
    report = describe_loaded(bag.dags, Path(broken)) | {"page": sorted(of_page.dags)}
    ran = [run(bag.dags[name], conf) for name, _, conf in (text.partition("=") for text in runs)]
    print(json.dumps({**report, "runs": ran}))


if __name__ == "__main__":
    logging.captureWarnings(True)
    main()
