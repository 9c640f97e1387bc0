"""Makes a DAG for each pipeline of each file. It only reads the files, without windrow or Kafka.

windrow itself isn't asked for the few settings that a DAG needs, for two reasons. Airflow
parses each file twice a minute in its own environment, where windrow isn't installed, and
again in each task. A `windrow` process per file would need a cache, and each machine of
Airflow would need a `windrow` (or a container) only for parsing.

No code of windrow is copied into this distribution, either. It uses packages that Airflow
has, croniter and Jinja. A mistake in this reading makes no wrong window, because `windrow
run` checks the whole file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, CronPartitionTimetable, Param
from croniter import croniter
from jinja2 import StrictUndefined, UndefinedError
from jinja2.sandbox import SandboxedEnvironment

from windrow_airflow.operators import (
    WindrowCatchUpOperator,
    WindrowEventsOperator,
    WindrowRunOperator,
)

KEY_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""The format of a DAG's partition keys: the start of a window, as windrow writes it.

Airflow's own format has no time zone, and windrow refuses instants without one.
"""

_TEMPLATES = SandboxedEnvironment(autoescape=False, undefined=StrictUndefined)

_CRON = re.compile(r"[\d*/,-]+( [\d*/,-]+){4}")
_DURATION = re.compile(r"(\d+)(ms|[smhd])")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}

TAG_LENGTH = 100
"""The maximum length of a tag in characters, set by Airflow. A topic's name may be longer."""

_NULL = ("", "~", "null")
"""The texts that YAML reads as null."""

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
    """Makes a DAG for each pipeline below a folder, by its id: `globals().update(dags_from(...))`.

    A file that can't be used causes an import error for that file only. The other pipelines
    have their DAGs.

    Args:
        folder: the folder with the pipelines' files: every `defs.yaml` of windrow in it and
            below. A file with `for_each` makes a DAG for each of its topics.
        command: as for `WindrowOperator`.
        env: as for `WindrowOperator`; also for the templates in the files.
        kafka_conn_id: as for `WindrowOperator`.
        options: as for `WindrowRunOperator`.
        settings: arguments of each DAG, such as `default_args={"pool": "spark"}` or
            `max_active_runs=4`.

    Raises:
        ValueError: no pipeline can be used.

    Example:
        from windrow_airflow import dags_from

        globals().update(dags_from("/opt/pipelines", command="/opt/windrow/bin/windrow"))
    """
    operator_options = {
        "command": command,
        "env": env,
        "kafka_conn_id": kafka_conn_id,
        "options": options,
    }
    filling = _Env({**os.environ, **(env or {})})
    dags, mistakes, paths = dict[str, DAG](), list[MistakenPipeline](), dict[str, Path]()
    for file in _files(Path(folder).absolute()):
        try:
            specs = list(_specs(file, filling))
        except Exception as error:  # noqa: BLE001 - whatever a file holds
            mistakes.append(MistakenPipeline.of(file, _reason(error)))
            continue
        for path, spec in specs:
            try:
                dag = _dag(path, spec, operator_options, settings)
            except Exception as error:  # noqa: BLE001 - whatever a file holds
                mistakes.append(MistakenPipeline.of(path, _reason(error)))
                continue
            if (first_path := paths.setdefault(dag.dag_id, path)) is path:
                dags[dag.dag_id] = dag
            else:
                dags.pop(dag.dag_id, None)
                reason = f"the pipeline {dag.dag_id} is in another file, too: {first_path}"
                mistakes.append(MistakenPipeline.of(path, reason))
    if not dags:
        message = "\n".join(mistaken.mistake for mistaken in mistakes)
        raise ValueError(message or f"No defs.yaml below {folder} is a pipeline of windrow's")
    return dags | {mistaken.dag_id: mistaken for mistaken in mistakes}


class MistakenPipeline(DAG):
    """A placeholder for a file that no DAG can be made from: an import error of that file alone.

    Airflow makes an import error of each DAG that can't be serialized, under the file that
    the DAG names. An error of the DAG file itself would remove the DAGs of all pipelines.
    """

    # Airflow sets it to the DAG file
    relative_fileloc = property(lambda self: self.path, lambda *_: None)
    # Airflow reads it when it serializes a DAG, so it raises the error
    edge_info = property(lambda self: self.refuse(), lambda *_: None)

    @classmethod
    def of(cls, path: Path, reason: str) -> MistakenPipeline:
        """Makes the placeholder from a pipeline's file and its mistake."""
        dag = cls(re.sub(r"[^\w.-]", "_", str(path))[-200:], schedule=None)
        dag.path, dag.mistake = str(path), f"{path}: {reason}"
        return dag

    def refuse(self) -> None:
        """Raises the mistake of the file."""
        raise ValueError(self.mistake)


def _files(folder: Path) -> Iterator[Path]:
    """Yields each `defs.yaml` below a folder. The folders of tables aren't searched."""
    for directory, folders, files in os.walk(folder):
        is_table = "_delta_log" in folders
        folders[:] = sorted(
            name for name in folders if not (is_table or "=" in name or name.startswith("."))
        )
        if "defs.yaml" in files:
            yield Path(directory, "defs.yaml")


class _Env(dict[str, str]):
    """The object `env` in a spec's templates: `env.NAME`, `env('NAME', 'default')`."""

    def __call__(self, name: str, default: str | None = None) -> object:
        return self.get(name, StrictUndefined(name=name) if default is None else default)


def _reason(error: Exception) -> str:
    text = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return f"no DAG can be made of it: {text}"


def _specs(file: Path, env: _Env) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yields the attributes that the DAGs of a file need; none if it belongs to another component.

    With each comes the path by which `windrow` finds the pipeline: the file, or `FILE:ID`.
    A subclass of windrow's component has another name and the same attributes.
    """
    text = file.read_text(encoding="utf-8")
    documents = [
        document for document in yaml.load_all(text, yaml.BaseLoader) if isinstance(document, dict)
    ]
    pipelines = [
        document.get("attributes", document) for document in documents if _is_pipeline(document)
    ]
    if not pipelines:
        return
    if len(documents) > 1:
        raise ValueError(f"it has {len(documents)} documents; give each pipeline a file of its own")
    settings = {name: pipelines[0].get(name) for name in ("id", "window")}
    for_each = pipelines[0].get("for_each")
    if not for_each:
        yield file, _fill_in({**settings, "topic": pipelines[0]["source"].get("topic")}, env)
        return
    topics, pattern = for_each["topics"], _fill_in(for_each.get("topic_pattern", ""), env)
    for topic in topics:
        match = re.fullmatch(pattern or ".*", topic)
        if match is None:
            raise ValueError(f"topic {topic} doesn't match for_each.topic_pattern")
        own = topics[topic] if isinstance(topics, dict) else {}
        spec = _fill_in(_merged(settings, own), env, match[1] if match.re.groups else topic)
        yield Path(f"{file}:{spec['id']}"), {**spec, "topic": topic}


def _merged(settings: Mapping[str, Any], own: Any) -> dict[str, Any]:
    """Returns settings with those of a topic laid over them, as windrow merges them."""
    merged = dict(settings)
    for name, setting in own.items() if isinstance(own, dict) else ():
        is_section = isinstance(setting, dict)
        merged[name] = _merged(merged.get(name) or {}, setting) if is_section else setting
    return {name: setting for name, setting in merged.items() if setting not in _NULL}


def _is_pipeline(document: Mapping[str, Any]) -> bool:
    kind, attributes = document.get("type"), document.get("attributes", document)
    if kind is None:
        return "window" in document
    return kind.startswith("windrow.") or {"id", "source", "window"} <= {*attributes}


def _fill_in(value: Any, env: _Env, topic: str = "{name}") -> Any:
    """Fills in the templates of a value, and the name of a topic, as windrow does."""
    if isinstance(value, dict):
        return {name: _fill_in(nested, env, topic) for name, nested in value.items()}
    if isinstance(value, str):
        value = value.replace("{name}", topic)
    if isinstance(value, str) and "{{" in value:
        try:
            return _TEMPLATES.from_string(value).render(env=env)
        except UndefinedError:
            raise ValueError(f"a variable of {value!r} isn't set where Airflow parses") from None
    return value


def _dag(
    path: Path,
    spec: Mapping[str, Any],
    operator_options: Mapping[str, Any],
    settings: dict[str, Any],
) -> DAG:
    name, window = str(spec["id"]), spec["window"]
    batches = window["grid"] == "batch"
    topics = spec["topic"] or []
    tags = ["windrow", *([topics] if isinstance(topics, str) else topics)]
    of_dag: dict[str, Any] = {
        "dag_id": name,
        "description": f"Runs {path}",
        "catchup": False,
        "max_active_runs": 1,
        "doc_md": f"`windrow show {path}` lists what is committed, `windrow doctor {path}` checks"
        " what the pipeline stands on.",
    }
    if batches:
        of_dag["schedule"] = _cron("every", window.get("every", "* * * * *"))
    else:
        cron = _cron("grid", _NAMED.get(window["grid"], window["grid"]))
        start = _instant(window["start"])
        delay_ticks = _ticks(cron, start, _duration(window.get("delay", "5m")))
        of_dag |= {
            # each tick's window closes before the next tick
            "schedule": CronPartitionTimetable(
                cron, timezone="UTC", run_offset=-1 - len(delay_ticks), key_format=KEY_FORMAT
            ),
            # the first run is when the first window ends or closes, not at its start
            "start_date": max([start, *delay_ticks]) + timedelta(seconds=1),
        }
    of_dag |= settings
    of_dag["tags"] = [tag[:TAG_LENGTH] for tag in {*tags, *settings.get("tags", ())}]
    if not batches:
        of_dag["params"] = {**_PARAMS, **settings.get("params", {})}
    with DAG(**of_dag) as dag:  # noqa: AIR002 - it is in there
        of_table: dict[str, Any] = {"outlets": [Asset(name)]}
        if batches:
            run = WindrowCatchUpOperator(
                task_id="run", spec=str(path), **of_table, **operator_options
            )
        else:
            verb = "{{ 'replay' if params.on_committed == 'replace' else 'run' }}"
            run = WindrowRunOperator(
                task_id="run", spec=str(path), verb=verb, due=True, **of_table, **operator_options
            )
        # `done` fails with `run`, so the DAG's run fails even though `events` succeeds
        run >> [WindrowEventsOperator(task_id="events", **of_table), EmptyOperator(task_id="done")]
    return dag


def _cron(setting: str, written: str) -> str:
    if not _CRON.fullmatch(written) or not croniter.is_valid(written):
        raise ValueError(f"window.{setting}: {written!r} is no cron expression of five fields")
    return written


def _duration(written: str) -> timedelta:
    parts = _DURATION.findall(written if not written.isdecimal() else f"{written}s")
    return timedelta(seconds=sum(int(number) * _SECONDS[unit] for number, unit in parts))


def _ticks(cron: str, start: datetime, span: timedelta) -> list[datetime]:
    """Returns the ticks of a cron expression in (start, start + span]."""
    ticks, tick_iterator = list[datetime](), croniter(cron, start)
    while (tick := tick_iterator.get_next(datetime)) <= start + span:
        ticks.append(tick)
    return ticks


def _instant(written: str) -> datetime:
    instant = datetime.fromisoformat(written)
    if instant.tzinfo is None:
        raise ValueError(f"window.start: {written} has no time zone")
    return instant
