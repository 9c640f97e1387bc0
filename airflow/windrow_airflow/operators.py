"""Operators that run windows, and the sensor that waits until a window is complete.

Each starts `windrow` as a process. `_failure` maps its exit codes to Airflow's exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import Asset, BaseHook, BaseOperator, BaseSensorOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from windrow_airflow.process import (
    BUG,
    REFUSED,
    TOO_EARLY,
    UNREACHABLE,
    WRONG_SPEC,
    Ended,
    Process,
    keys,
    summary,
    unstartable,
    variables,
)

_BATCH = re.compile(r"(batch-)?\d{1,9}(/.*)?")
"""Matches the name of a micro-batch, or of several."""

_COMMITTED = "committed"
"""The XCom of a failed task with the windows that it has committed, for their events."""


class WindrowUnreachable(AirflowException):
    """Kafka, the table, the ledger or Java didn't answer: the task is retried.

    Example:
        from airflow.sdk import DAG
        from windrow_airflow import WindrowRunOperator, WindrowUnreachable

        def log_retry(context):
            if isinstance(context["exception"], WindrowUnreachable):
                print("a system is away:", context["exception"])

        with DAG("payments"):
            spec = "/opt/pipelines/payments/defs.yaml"
            WindrowRunOperator(task_id="run", spec=spec, on_retry_callback=log_retry)
    """


class WindrowTooEarly(AirflowException):
    """The window isn't over yet, or is held open by a transaction: the task is retried.

    Example:
        from airflow.sdk import DAG
        from windrow_airflow import WindrowRunOperator, WindrowTooEarly

        def log_retry(context):
            if isinstance(context["exception"], WindrowTooEarly):
                print("not over yet:", context["exception"])

        with DAG("payments"):
            spec = "/opt/pipelines/payments/defs.yaml"
            WindrowRunOperator(task_id="run", spec=spec, on_retry_callback=log_retry)
    """


_RETRIED = {UNREACHABLE: WindrowUnreachable, TOO_EARLY: WindrowTooEarly}


def _failure(ended: Ended) -> AirflowException:
    """Returns the exception for an exit code.

    An error that no retry fixes fails the task at once.
    """
    if ended.code in {REFUSED, WRONG_SPEC, BUG}:
        return AirflowFailException(ended.message)
    return _RETRIED.get(ended.code, AirflowException)(ended.message)


class WindrowOperator(BaseOperator):
    """The base class: a pipeline, and how `windrow` is started for it."""

    template_fields: Sequence[str] = ("spec", "window")
    ui_color = "#d7efe2"

    def __init__(
        self,
        *,
        spec: str,
        window: str | None = None,
        command: str | Sequence[str] = "windrow",
        env: Mapping[str, str] | None = None,
        kafka_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Makes the operator.

        Args:
            spec: the pipeline's file, at the path that `command` finds on the worker.
            window: an instant, `START/END`, or a micro-batch's name; None: the window of
                the DAG run.
            command: the program, or its words: `["docker", "run", ...]`.
            env: variables that are added to the environment of the process.
            kafka_conn_id: a connection of Airflow's Kafka provider. The process gets its
                properties as variables: `sasl.password` as `KAFKA_SASL_PASSWORD`.
            kwargs: the arguments of Airflow's operators.
        """
        super().__init__(**kwargs)
        self.spec = spec
        self.window = window
        self.command = [command] if isinstance(command, str) else list(command)
        self.env = dict(env or {})
        self.kafka_conn_id = kafka_conn_id
        self._process: Process | None = None

    def start(self, *words: str) -> Ended:
        """Starts `windrow` and waits for its end, with its log in the task's log, line by line."""
        self._process = Process([*self.command, *words], {**self._connection(), **self.env})
        try:
            return self._process.run(lambda line: self.log.info("%s", line))
        except OSError as error:
            raise AirflowFailException(unstartable(self.command[0], error)) from None

    def _connection(self) -> Mapping[str, str]:
        if self.kafka_conn_id is None:
            return {}
        return variables(BaseHook.get_connection(self.kafka_conn_id).extra_dejson)

    def on_kill(self) -> None:
        """Interrupts the process, and waits until it has cleaned up."""
        if self._process is not None:
            self._process.interrupt()

    def window_of(self, context: Context) -> str:
        """Returns the window of the operator, of the param `window`, or of the DAG run.

        The logical date is never used, because in a manual run it isn't the start of the
        interval.
        """
        named = self.window or context["params"].get("window") or context.get("partition_key")
        if named:
            return str(named)
        start, end = context.get("data_interval_start"), context.get("data_interval_end")
        if start is None or end is None or start == end:
            raise AirflowFailException(
                "This run names no window: it has no partition key, no data interval, and no param"
                " `window`. Trigger it with a partition key such as 2026-01-05T09:00:00Z, or give"
                " that as `window` in its configuration."
            )
        return f"{start.isoformat()}/{end.isoformat()}"


class WindrowRunOperator(WindrowOperator):
    """Commits the window of a DAG run, exactly once. A committed window is only reported.

    Example:
        from airflow.sdk import DAG
        from windrow_airflow import WindrowRunOperator

        with DAG("one_hour"):
            spec, nine = "/opt/pipelines/payments/defs.yaml", "2026-01-05T09:00:00Z"
            WindrowRunOperator(task_id="run", spec=spec, window=nine)
    """

    template_fields = (*WindrowOperator.template_fields, "verb")

    def __init__(
        self,
        *,
        verb: str = "run",
        due: bool = False,
        options: Sequence[str] = (),
        deferrable: bool = True,
        retries: int = 3,
        retry_delay: timedelta = timedelta(minutes=1),
        **kwargs: Any,
    ) -> None:
        """Takes the arguments of `WindrowOperator`, and others.

        Args:
            verb: `run`, or `replay`, which replaces committed windows.
            due: a scheduled run that was not cleared also runs all other due windows.
            options: more words of the command: `["--connect", "sc://spark:15002"]`.
            deferrable: wait in the triggerer for the end of a window that isn't over;
                False: it counts as a try.
            retries: the number of retries, only after errors that another try may fix.
            retry_delay: the time between two tries.
            kwargs: the arguments of `WindrowOperator`.
        """
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)
        self.verb = verb
        self.due = due
        self.options = list(options)
        self.deferrable = deferrable

    def words(self, context: Context) -> list[str]:
        """Returns the words of the command that say which windows are run."""
        words = [self.verb, self.spec, "--window", self.window_of(context)]
        run = context["dag_run"]
        is_tick = run.run_type == "scheduled" and not run.clear_number
        return [*words, "--due"] if self.due and is_tick and self.verb == "run" else words

    def request(self, context: Context) -> str:
        """Returns the request's id, which is the same in each retry.

        After a user cleared the run, it is another id.
        """
        ti, cleared = context["ti"], context["dag_run"].clear_number
        request = f"{ti.dag_id} {ti.run_id} {ti.task_id} {ti.map_index}"
        return f"{request} {cleared}" if cleared else request

    def execute(self, context: Context, event: object = None) -> dict[str, Any]:
        """Calls the command; returns a summary of the receipts."""
        del event  # the trigger's event only says that the time has come
        ti = context["ti"]
        ended = self.start(*self.words(context), *self.options, "--request", self.request(context))
        until = ended.document.get("error", {}).get("until")
        if ended.code == TOO_EARLY and until and self.deferrable:
            from airflow.providers.standard.triggers.temporal import DateTimeTrigger

            self.log.info("%s", ended.message)
            self.defer(
                trigger=DateTimeTrigger(datetime.fromisoformat(until)), method_name="execute"
            )
        run_summary = summary(ended.document) | {"receipts": f"windrow show {self.spec}"}
        if ended.code:
            if windows := keys(ended.document):
                ti.xcom_push(_COMMITTED, [run_summary, windows])
            raise _failure(ended)
        if "windows" not in ended.document:
            raise AirflowFailException(
                f"{' '.join(self.command)} ended well, and printed no document of windrow's"
            )
        if not ended.document["windows"]:
            raise AirflowSkipException("No new messages are waiting.")
        _tell(context, self.outlets, run_summary, keys(ended.document))
        return summary(ended.document)


def _tell(
    context: Context, outlets: Sequence[Any], extra: Mapping[str, Any], windows: Sequence[str]
) -> None:
    """Adds one event per window to each asset among the outlets."""
    for outlet in outlets:
        if isinstance(outlet, Asset):
            outlet_events = context["outlet_events"][outlet]
            outlet_events.extra = dict(extra)
            if [*windows] != [context.get("partition_key")]:
                outlet_events.add_partitions([*windows])


class WindrowEventsOperator(BaseOperator):
    """Adds the asset events of the windows that were committed by failed upstream tasks.

    Airflow drops the events of a task that fails, even if it fails for only one window of
    many.

    Example:
        from airflow.sdk import DAG, Asset
        from windrow_airflow import WindrowCatchUpOperator, WindrowEventsOperator

        hours = "2026-01-05T00:00:00Z/2026-01-06T00:00:00Z"
        with DAG("payments_catch_up"):
            spec, table = "/opt/pipelines/payments/defs.yaml", [Asset("payments")]
            run = WindrowCatchUpOperator(task_id="run", spec=spec, window=hours, outlets=table)
            run >> WindrowEventsOperator(task_id="events", outlets=table)
    """

    def __init__(self, *, trigger_rule: str = "all_failed", **kwargs: Any) -> None:
        """Takes the arguments of Airflow's operators, with the assets as `outlets`."""
        super().__init__(trigger_rule=trigger_rule, **kwargs)

    def execute(self, context: Context) -> None:
        """Adds the events. The task is skipped if there are none."""
        ti, upstream_ids = context["ti"], sorted(self.upstream_task_ids)
        committed_runs = [run for run in ti.xcom_pull(task_ids=upstream_ids, key=_COMMITTED) if run]
        if not committed_runs:
            raise AirflowSkipException("No window was committed.")
        for extra, windows in committed_runs:
            _tell(context, self.outlets, extra, windows)


class WindrowCatchUpOperator(WindrowRunOperator):
    """Commits many windows in one process: `START/END`, or all waiting micro-batches.

    Example:
        from airflow.sdk import DAG, Asset
        from windrow_airflow import WindrowCatchUpOperator

        hours = "2026-01-05T00:00:00Z/2026-01-06T00:00:00Z"
        with DAG("payments_catch_up"):
            spec, table = "/opt/pipelines/payments/defs.yaml", Asset("payments")
            WindrowCatchUpOperator(task_id="run", spec=spec, window=hours, outlets=[table])
    """

    def words(self, context: Context) -> list[str]:
        """Returns the words of the command.

        The command continues after a refused window, and fails at the end.
        """
        named = self.window or context["params"].get("window")
        if not named:
            return ["run", self.spec, "--drain"]
        words = [self.verb, self.spec, "--window", named]
        # a refused micro-batch blocks all later ones
        return words if _BATCH.fullmatch(str(named)) else [*words, "--keep-going"]


class WindrowMaintainOperator(WindrowOperator):
    """Joins small files of the table, and removes what is too old: versions, rows, unneeded files.

    Example:
        from airflow.sdk import DAG
        from windrow_airflow import WindrowMaintainOperator

        with DAG("payments_maintenance", schedule="0 3 * * *"):
            spec = "/opt/pipelines/payments/defs.yaml"
            WindrowMaintainOperator(task_id="maintain", spec=spec)
    """

    def __init__(
        self, *, retries: int = 3, retry_delay: timedelta = timedelta(minutes=1), **kwargs: Any
    ) -> None:
        """Takes the arguments of `WindrowOperator`; retries only follow errors that may pass."""
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)

    def execute(self, context: Context) -> dict[str, int]:
        """Calls the command; returns how much it changed, by kind."""
        del context
        ended = self.start("maintain", self.spec)
        if ended.code:
            raise _failure(ended)
        maintained = ended.document["maintained"]
        return {
            name: figure if isinstance(figure, int) else len(figure)
            for name, figure in maintained.items()
        }


class WindrowCompleteSensor(WindrowOperator, BaseSensorOperator):
    """Waits until a window is complete: its hours are over in every topic-partition.

    Example:
        from airflow.sdk import DAG, Asset, PartitionedAssetTimetable
        from windrow_airflow import WindrowCompleteSensor

        with DAG("hourly_sales", schedule=PartitionedAssetTimetable(assets=Asset("payments"))):
            spec = "/opt/pipelines/payments/defs.yaml"
            complete = WindrowCompleteSensor(task_id="complete", spec=spec, timeout=6 * 3600)
    """

    def __init__(self, *, deferrable: bool = True, **kwargs: Any) -> None:
        """Takes the arguments of `WindrowOperator` and of Airflow's sensors.

        Args:
            deferrable: ask from the triggerer, where `command` must be installed, too.
            kwargs: the arguments of `WindrowOperator` and of Airflow's sensors.
        """
        super().__init__(**kwargs)
        self.deferrable = deferrable

    def words(self, context: Context) -> list[str]:
        """Returns the words of the command that asks for the window's state."""
        return ["state", self.spec, "--window", self.window_of(context)]

    def poke(self, context: Context) -> bool:
        """Asks once. If a system can't be reached, the sensor asks again later."""
        ended = self.start(*self.words(context))
        if ended.code and ended.code not in _RETRIED:
            raise _failure(ended)
        return ended.code == 0

    def execute(self, context: Context) -> None:
        """Asks once, and defers until the window is complete."""
        if not self.deferrable:
            super().execute(context)
        elif not self.poke(context):
            from windrow_airflow.triggers import WindrowCompleteTrigger

            words = [*self.command, *self.words(context)]
            self.defer(
                trigger=WindrowCompleteTrigger(
                    words, self.env, self.kafka_conn_id, self.poke_interval
                ),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout),
            )

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> None:
        """Raises an exception if the trigger's last answer is a failure."""
        del context
        ended = Ended(event["code"], event["document"])
        if ended.code:
            raise _failure(ended)
