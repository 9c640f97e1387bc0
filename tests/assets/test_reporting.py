"""What a run of a table asset asks windrow for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assets.reporting import request_id
from tests.assets.world import World


@pytest.mark.parametrize(("root", "request_"), [(None, "run"), ("root", "root")])
def test_a_retry_asks_for_what_its_root_asked(root: str | None, request_: str) -> None:
    """All retries of a run are one request: a replacement is made once."""
    context: Any = SimpleNamespace(run=SimpleNamespace(run_id="run", root_run_id=root))
    assert request_id(context) == request_


def test_dagster_hands_a_retry_its_root(world: World) -> None:
    """A run that was made as a retry of another one has that one as its root, in the field that is asked."""
    job = world.defs.resolve_job_def("things_windows")
    first = world.instance.create_run_for_job(job)
    again = world.instance.create_run_for_job(job, parent_run_id=first.run_id, root_run_id=first.run_id)
    contexts: list[Any] = [SimpleNamespace(run=run) for run in (first, again)]
    assert {request_id(context) for context in contexts} == {first.run_id}
