"""The requests of runs, and the hint about the executor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from tests.assets.world import World
from windrow.assets.reporting import request_id, warn_of_processes


@pytest.mark.parametrize(("root", "request_"), [(None, "run"), ("root", "root")])
def test_a_retry_asks_for_what_its_root_asked(root: str | None, request_: str) -> None:
    """All retries of a run have the same request, so a window is replaced once."""
    context: Any = SimpleNamespace(run=SimpleNamespace(run_id="run", root_run_id=root))
    assert request_id(context) == request_


def test_dagster_hands_a_retry_its_root(world: World) -> None:
    """Dagster gives a retry the id of its root run in the field that windrow reads."""
    job = world.defs.resolve_job_def("things_windows")
    first = world.instance.create_run_for_job(job)
    retry = world.instance.create_run_for_job(
        job, parent_run_id=first.run_id, root_run_id=first.run_id
    )
    contexts: list[Any] = [SimpleNamespace(run=run) for run in (first, retry)]
    assert {request_id(context) for context in contexts} == {first.run_id}


def test_the_default_executor_is_told_what_it_costs(world: World) -> None:
    """A run whose steps have their own processes logs how to save their start.

    A run in one process logs nothing.
    """
    lines: list[str] = []
    for executor in (
        world.defs.resolve_job_def("things_windows").executor_def,
        dg.in_process_executor,
    ):
        context: Any = SimpleNamespace(
            job_def=SimpleNamespace(executor_def=executor), log=SimpleNamespace(info=lines.append)
        )
        warn_of_processes(context)
    assert ["executor=dg.in_process_executor" in line for line in lines] == [True]
