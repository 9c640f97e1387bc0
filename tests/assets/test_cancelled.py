"""Cancelled runs: no step starts again, and no window is committed after the cancellation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import dagster as dg
import pytest

# not among the public names; dagster is pinned to 1.13
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster_graphql.test.utils import execute_dagster_graphql

from tests.assets.cancellable import FOLDER, specs
from tests.assets.processes import five_hours
from tests.assets.world import World
from windrow.assets.dagster_internals import range_tags
from windrow.assets.names import job_name
from windrow.ingest.assemble import assemble
from windrow.ingest.runner import run_windows, task
from windrow.ingest.sinks.kit.commit import commit_loop
from windrow.ingest.testing.engine import LocalEngine

ROOT = Path(__file__).parents[2]
LIMIT = 240

LAUNCH = """
mutation($job: String!, $tags: [ExecutionTag!]) {
  launchRun(executionParams: {
    selector: {
      repositoryLocationName: "here", repositoryName: "__repository__", jobName: $job
    },
    executionMetadata: {tags: $tags}
  }) { __typename ... on LaunchRunSuccess { run { runId } } }
}
"""
TERMINATE = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"


@pytest.mark.some(3)
@pytest.mark.parametrize("point", ["write.middle", "write.after", "commit.before", "commit.after"])
@pytest.mark.parametrize("grid", ["hourly", "batch"])
def test_an_interrupted_step_is_not_begun_again(
    tmp_path: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    grid: str,
) -> None:
    """An interrupt at any point ends the run, and its window is in the table if it was committed.

    A later run reports that window.
    """
    over = {"window": {"grid": "batch"}} if grid == "batch" else {}
    world = World(tmp_path, instance, **over)
    world.fill(2)

    def interrupt(reached_point: str) -> None:
        if reached_point == point:
            raise dg.DagsterExecutionInterruptedError

    run: Callable[[], dg.ExecuteInProcessResult] = (
        world.run_batches if grid == "batch" else lambda: world.run(0)
    )
    with monkeypatch.context() as patched:
        for module in (task, commit_loop):
            patched.setattr(module, "crash_point", interrupt)
        assert not run().success
    assert world.connections == 1
    committed = [c.receipt for c in world.sink.receipts()]
    assert len(committed) == (point == "commit.after")
    assert run().success
    assert [c.receipt for c in world.sink.receipts()][: len(committed)] == committed


@pytest.mark.parametrize(
    ("grid", "point", "shown"),
    [
        ("hourly", "write.middle", 0),
        ("hourly", "commit.after", 1),
        ("hourly", "report.before", 1),
        ("batch", "write.after", 0),
        ("batch", "report.before", 1),
    ],
)
def test_a_cancellation_that_python_drops_is_heard(
    tmp_path: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    grid: str,
    point: str,
    shown: int,
) -> None:
    """A cancellation whose interrupt Python drops ends the run before the next window.

    Python drops an interrupt that is raised in a callback of its garbage collector. So the run
    asks Dagster before each commit and between windows.
    """
    over = {"window": {"grid": "batch", "max_records": 30}} if grid == "batch" else {}
    world = World(tmp_path, instance, **over)
    world.fill(3)

    def cancel(reached_point: str) -> None:
        started = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])
        for running in instance.get_runs(started) if reached_point == point else ():
            instance.report_run_canceling(running)

    hours = range_tags(dg.PartitionKeyRange(world.key(0), world.key(2)))
    job = world.defs.resolve_job_def(job_name(world.spec))

    def run() -> dg.ExecuteInProcessResult:
        tags = {} if grid == "batch" else hours
        return job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)

    if point == "report.before":  # so windows are committed, but not shown
        with monkeypatch.context() as patched:
            patched.setattr("windrow.assets.window_asset.show", lambda *_, **__: None)
            patched.setattr("windrow.assets.micro_batches.show", lambda *_, **__: None)
            assert run().success
    count_before = len(list(world.sink.receipts()))
    for module in (task, commit_loop, run_windows):
        monkeypatch.setattr(module, "crash_point", cancel)
    assert not run().success
    assert len(instance.fetch_materializations(dg.AssetKey(["things"]), limit=9).records) == shown
    assert len(list(world.sink.receipts())) == (count_before or shown)


@pytest.fixture(scope="module")
def cancellable(
    kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, WorkspaceRequestContext]]:
    """A real Dagster with a code server, and the folder of its pipelines."""
    folder = tmp_path_factory.mktemp("cancellable")
    (folder / "topic").write_text(f"{kafka} {five_hours(kafka)}")
    at_once = {"module": "dagster.core.run_coordinator", "class": "DefaultRunCoordinator"}
    with (
        pytest.MonkeyPatch.context() as patched,
        dg.instance_for_test({"run_coordinator": at_once}, temp_dir=str(folder)) as instance,
    ):
        patched.setenv(FOLDER, str(folder))
        target = ModuleTarget(
            module_name="tests.assets.cancellable",
            attribute="defs",
            working_directory=str(ROOT),
            location_name="here",
        )
        with WorkspaceProcessContext(instance, target) as workspace:
            yield folder, workspace.create_request_context()


def query(context: WorkspaceRequestContext, mutation: str, **variables: Any) -> Any:
    """Returns the answer of Dagster's API."""
    [response] = execute_dagster_graphql(context, mutation, variables).data.values()
    return response


def until(true: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < deadline, otherwise
        Event().wait(0.05)


@pytest.mark.broker
@pytest.mark.long
@pytest.mark.parametrize(
    ("pipeline", "point", "n", "drops"),
    [
        ("hours", "write.middle", 1, ""),
        ("hours", "write.after", 2, ""),
        ("hours", "commit.before", 3, ""),
        ("hours", "write.middle", 4, "drops"),
        ("batches", "commit.after", 0, ""),
    ],
)
def test_a_run_that_is_cancelled_is_over(
    cancellable: tuple[Path, WorkspaceRequestContext], pipeline: str, point: str, n: int, drops: str
) -> None:
    """A run that is cancelled by Dagster's API is cancelled, even if Python drops the interrupt.

    1. A run reads, has staged, or commits.
    2. The API cancels the run.
    3. A second run starts.

    No step starts again after 2. The window is in the table if it was committed before 2. After
    3, each window is in the table once.
    """
    folder, context = cancellable
    [spec] = [spec for spec in specs(folder) if spec.id == pipeline]
    window = f"2026-01-05-0{n}:00"
    hours = [{"key": "dagster/partition", "value": window}] if pipeline == "hours" else []

    def launch() -> str:
        response = query(context, LAUNCH, job=job_name(spec), tags=hours)
        return str(response["run"]["runId"])

    def status(run: str) -> dg.DagsterRunStatus:
        dagster_run = context.instance.get_run_by_id(run)
        assert dagster_run is not None
        return dagster_run.status

    def windows() -> list[str]:
        receipts = assemble(spec, LocalEngine()).sink.receipts()
        return [committed.receipt.window.key for committed in receipts]

    windows_before = windows()
    (folder / point).write_text(drops)
    cancelled = launch()
    until((folder / "reached").exists, "the run didn't get to its point")
    (folder / "reached").unlink()
    assert query(context, TERMINATE, id=cancelled)["__typename"] == "TerminateRunSuccess"
    until(lambda: status(cancelled) == dg.DagsterRunStatus.CANCELED, "it wasn't cancelled")
    events = [r.dagster_event for r in context.instance.all_logs(cancelled)]
    kinds = [e.event_type_value for e in events if e is not None and e.step_key == pipeline]
    assert (kinds.count("STEP_START"), kinds.count("STEP_UP_FOR_RETRY")) == (1, 0)
    assert len(windows()) - len(windows_before) == (point == "commit.after")
    second_run = launch()
    until(
        lambda: status(second_run) == dg.DagsterRunStatus.SUCCESS, "the run after it didn't succeed"
    )
    assert len(windows()) == len(set(windows()))
    assert len(windows()) > len(windows_before)
