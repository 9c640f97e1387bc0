"""Failed runs: one clear sentence with advice, and no stack trace of Dagster's code."""

from __future__ import annotations

import errno
from typing import Any

import dagster as dg
import pytest

from tests.assets.world import TOPIC, MemorySource, World, hour
from windrow.assets.topic import topic_assets
from windrow.ingest.assemble import Connection
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.source import Isolation
from windrow.ingest.runner.task import SplitTask

SECRET = "secret-payload"
AWAY = UnreachableError("The broker is away", "plan", "Wait.", TOPIC, 1)


def failure(result: dg.ExecuteInProcessResult, step: str = "things") -> Any:
    """Returns Dagster's data about the failure of a step."""
    [failed] = [e for e in result.get_step_failure_events() if e.step_key == step]
    return failed.step_failure_data


def entries_of(data: Any) -> dict[str, Any]:
    return {name: value.value for name, value in data.user_failure_data.metadata.items()}


def away(*_: object) -> object:
    raise AWAY


@pytest.fixture
def impatient(world: World) -> None:
    """Allows one retry, without a pause."""
    world.set_retries(1)


def test_a_refused_window_fails_with_its_sentence_alone(world: World) -> None:
    """The error of a refused window is one sentence with advice, without Dagster's stack trace."""
    world.fill(1)
    for _ in range(200):
        world.send(0, 30, b"poison")
    error = failure(world.run(0)).error
    assert error.message.startswith(f"Window {world.key(0)}: ")
    assert "max_dead_ratio" in error.message
    assert list(error.stack) == []
    assert error.cause is None
    assert error.context is None
    assert error.cls_name == "DeadLetterLimitError"


def test_a_failure_says_what_where_and_what_to_do(world: World) -> None:
    """The failure's metadata say what happened, where, and what to do, in this order."""
    world.fill(2)
    world.broker.delete_records(TopicPartition(TOPIC, 0), 10)
    metadata = entries_of(failure(world.run(0)))
    assert list(metadata)[:4] == ["window", "what", "where", "do"]
    assert metadata["window"] == world.key(0)
    assert "shop.things[0]" in metadata["where"]
    assert metadata["do"]
    assert (metadata["kind"], metadata["exit_code"]) == ("DataLossError", 1)


def test_what_can_pass_is_tried_again_and_then_told_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """A temporary error is retried, and each retry and the final failure have the same sentence."""
    monkeypatch.setattr(world.broker, "stable_ends", away)
    world.load()
    world.fill(1)
    world.now = hour(1, 10)
    result = world.run(0)
    assert not result.success
    retries = [
        e.event_specific_data
        for e in result.all_events
        if e.event_type_value == "STEP_UP_FOR_RETRY"
    ]
    assert [list(r.error.stack) for r in retries] == [[]]
    assert "The broker is away" in retries[0].error.to_string()
    error = failure(result).error
    assert error.message.startswith(
        f"Window {world.key(0)}: The broker is away (plan, shop.things[1]). Wait."
    )
    assert list(error.stack) == []
    assert entries_of(failure(result))["do"] == "Wait."


def test_a_pipeline_that_can_not_be_opened_is_told_like_a_window(
    world: World, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """A ledger that can't be reached fails the run like a window, after the same retries."""
    monkeypatch.setattr("windrow.resources.table.open_ledger", away)
    world.load()
    data = failure(world.run(0))
    assert world.connections == 2
    assert "The broker is away" in data.error.message
    assert list(data.error.stack) == []


def test_a_place_that_can_not_be_used_is_no_bug(
    world: World, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """A folder without write permission is named with advice, and isn't called a bug."""

    def deny(*_: object) -> object:
        raise PermissionError(errno.EACCES, "Permission denied", "/lake/things")

    monkeypatch.setattr("windrow.resources.table.open_ledger", deny)
    world.load()
    data = failure(world.run(0))
    assert "/lake/things can't be used: Permission denied" in data.error.message
    assert "bug" not in data.error.message
    assert entries_of(data)["do"].endswith("; then materialize it again.")


def test_a_bug_is_not_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """An unexpected exception is called a bug and isn't retried.

    It keeps its own stack trace, but not its text.
    """

    def broken(*_: object) -> object:
        raise KeyError(SECRET)  # a stack trace shows this line

    monkeypatch.setattr(world.broker, "stable_ends", broken)
    world.load()
    world.fill(1)
    data = failure(world.run(0))
    assert world.connections == 1
    assert data.error.message.startswith(
        f"Window {world.key(0)}: KeyError: this is a bug in windrow, at "
    )
    assert list(data.error.stack) == []
    assert "in broken" in data.error.cause.message
    assert "execute_plan" not in data.error.cause.message
    assert entries_of(data)["exit_code"] == 70
    assert SECRET not in data.error.to_string() + str(entries_of(data))


def test_a_bug_in_a_worker_is_not_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    """A bug in a task fails the step without a retry.

    It has the worker's stack trace, but not the exception's text.
    """

    def broken(*_: object) -> object:
        raise KeyError(SECRET)  # a stack trace shows this line

    monkeypatch.setattr(SplitTask, "__call__", broken)
    world.fill(1)
    data = failure(world.run(0))
    assert world.connections == 1
    assert data.error.message.startswith(
        f"Window {world.key(0)}: KeyError: this is a bug in windrow, at "
    )
    assert list(data.error.stack) == []
    assert "in broken" in data.error.cause.message
    assert SECRET not in data.error.to_string()
    assert (entries_of(data)["kind"], entries_of(data)["exit_code"]) == ("BugError", 70)
    assert TOPIC in entries_of(data)["where"]


def test_a_check_that_can_not_look_says_why_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check of a table that can't be read fails with one sentence."""
    world.fill(1)
    monkeypatch.setattr(world.sink, "receipts", away)
    error = failure(world.run(0), "things_receipts").error
    assert "The broker is away" in error.message
    assert list(error.stack) == []


def test_a_topic_that_can_not_be_observed_says_why_alone(world: World) -> None:
    """An observation of a cluster that doesn't answer fails with one sentence."""

    class Gone(MemorySource):
        def connect(self, isolation: Isolation) -> Connection:
            raise AWAY

    defs = dg.Definitions(topic_assets(world.spec), resources=world.topic_resources(Gone))
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=world.instance, raise_on_error=False
    )
    [failed] = result.get_step_failure_events()
    error = failed.step_failure_data.error
    assert error.message.startswith(f"Kafka topic {TOPIC}: The broker is away")
    assert list(error.stack) == []
