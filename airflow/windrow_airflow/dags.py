"""One DAG for each pipeline's file. Reads the files alone: no windrow, and no Kafka."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from airflow.sdk import DAG, Asset, CronPartitionTimetable, Param
from jinja2.sandbox import SandboxedEnvironment

from windrow_airflow.operators import WindrowCatchUpOperator, WindrowRunOperator

KEY_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""The partition keys of a DAG: the instants at which windows start, as windrow names them.

Airflow's own format has no time zone, and windrow takes no instant without one.
"""

_TEMPLATES = SandboxedEnvironment(autoescape=False)

_NAMED = {"hourly": "0 * * * *", "daily": "0 0 * * *"}

_PARAMS = {
    "window": Param(
        None,
        type=["null", "string"],
        description="For a run by hand: 2026-01-05T09:00:00Z, or START/END for several windows",
    ),
    "on_committed": Param(
        "report",
        enum=["report", "replace"],
        description="replace: read the same offsets again, and replace the rows (windrow replay)",
    ),
}


def dags_from(
    folder: str | os.PathLike[str],
    *,
    command: str | Sequence[str] = "windrow",
    env: Mapping[str, str] | None = None,
    kafka_conn_id: str | None = None,
    options: Sequence[str] = (),
    **settings: Any,
) -> dict[str, DAG]:
    """Makes a DAG of each pipeline below a folder, by its id: `globals().update(dags_from(...))`.

    Args:
        folder: where the pipelines' files lie: every `defs.yaml` that is one of windrow's.
        command: as of `WindrowOperator`.
        env: the same; also for the templates in the files.
        kafka_conn_id: as of `WindrowOperator`.
        options: as of `WindrowRunOperator`.
        settings: of each DAG, as `default_args={"pool": "spark"}` or `max_active_runs=4`.

    Raises:
        ValueError: a file can't be used; there is none; two have one id.
    """
    how = {
        "command": command,
        "env": env,
        "kafka_conn_id": kafka_conn_id,
        "options": options,
    }
    filling = _Env({**os.environ, **(env or {})})
    found = dict[str, DAG]()
    for path in sorted(Path(folder).absolute().rglob("defs.yaml")):
        try:
            spec = _spec(yaml.safe_load(path.read_text(encoding="utf-8")), filling)
            dag = None if spec is None else _dag(path, spec, how, settings)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise ValueError(f"{path}: no DAG can be made of it: {what}") from error
        if dag is None:
            continue
        if dag.dag_id in found:
            raise ValueError(f"{path}: the pipeline {dag.dag_id} is in another file, too")
        found[dag.dag_id] = dag
    if not found:
        raise ValueError(f"No defs.yaml below {folder} is a pipeline of windrow's")
    return found


class _Env(dict[str, str]):
    """What `env` is in a spec's templates: `env.NAME`, `env('NAME', 'default')`."""

    def __call__(self, name: str, default: str = "") -> str:
        return self.get(name, default)


def _spec(document: Any, env: _Env) -> Mapping[str, Any] | None:
    """What a DAG needs of a pipeline's attributes; None if the file is another component's."""
    if not isinstance(document, dict):
        return None
    kind = document.get("type")
    if kind is None and "window" not in document:
        return None
    if kind is not None and not str(kind).startswith("windrow."):
        return None
    attributes = document.get("attributes", document)
    return {
        "id": _filled(attributes["id"], env),
        "window": _filled(attributes["window"], env),
        "topic": _filled(attributes["source"].get("topic"), env),
    }


def _filled(value: Any, env: _Env) -> Any:
    """A value with its templates filled in, as windrow does."""
    if isinstance(value, dict):
        return {name: _filled(each, env) for name, each in value.items()}
    if isinstance(value, str) and "{{" in value:
        return _TEMPLATES.from_string(value).render(env=env)
    return value


def _dag(
    path: Path, spec: Mapping[str, Any], how: Mapping[str, Any], settings: dict[str, Any]
) -> DAG:
    name, window = str(spec["id"]), spec["window"]
    batches = window["grid"] == "batch"
    topics = spec["topic"] or []
    of_dag: dict[str, Any] = {
        "dag_id": name,
        "description": f"Runs {path}",
        "catchup": False,
        "max_active_runs": 1,
        "tags": ["windrow", *([topics] if isinstance(topics, str) else topics)],
        "doc_md": f"`windrow show {path}` lists what is committed, `windrow doctor {path}` checks"
        " what the pipeline stands on.",
    }
    if batches:
        of_dag["schedule"] = window.get("every", "* * * * *")
    else:
        of_dag |= {
            "schedule": CronPartitionTimetable(
                _NAMED.get(window["grid"], window["grid"]),
                timezone="UTC",
                run_offset=-1,
                key_format=KEY_FORMAT,
            ),
            # the first run is at the end of the first window, not at its start
            "start_date": _instant(window["start"]) + timedelta(seconds=1),
            "params": _PARAMS,
        }
    with DAG(**(of_dag | settings)) as dag:  # noqa: AIR002 - it is in there
        if batches:
            WindrowCatchUpOperator(task_id="run", spec=str(path), outlets=[Asset(name)], **how)
        else:
            verb = "{{ 'replay' if params.on_committed == 'replace' else 'run' }}"
            WindrowRunOperator(
                task_id="run", spec=str(path), verb=verb, outlets=[Asset(name)], **how
            )
    return dag


def _instant(written: object) -> datetime:
    at = written if isinstance(written, datetime) else datetime.fromisoformat(str(written))
    if at.tzinfo is None:
        raise ValueError(f"window.start: {written} has no time zone")
    return at
