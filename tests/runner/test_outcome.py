"""Outcomes of an engine's tries."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from polars.exceptions import PanicException

from windrow.ingest.cli.output import Interrupted
from windrow.ingest.errors import BugError
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import Staged
from windrow.ingest.runner.outcome import ErrorData, outcome_of, result_of


class Own(BaseException):
    """A user's exception class that isn't an Exception."""


@pytest.mark.parametrize("kind", [SystemExit, PanicException, asyncio.CancelledError, Own])
def test_what_is_no_exception_brings_its_error_back(kind: type[BaseException]) -> None:
    """A BaseException such as `sys.exit`, a Rust panic or a cancelled asyncio task becomes a
    BugError, and doesn't end the worker.

    Spark would start the worker again in vain.
    """

    def raises(_: Split) -> Staged:
        raise kind("secret")

    with pytest.raises(BugError, match=rf"^{kind.__name__}: this is a bug in \w+, at ") as caught:
        result_of(outcome_of(raises, Split("t", 0, 7, 9)))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, GeneratorExit, DagsterExecutionInterruptedError, Interrupted]
)
def test_what_ends_the_process_passes(kind: type[BaseException]) -> None:
    """Ctrl-C and the cancellation of a Dagster run are raised on, because they are no bugs of a
    task.
    """

    def raises(_: Split) -> Staged:
        raise kind

    with pytest.raises(kind):
        outcome_of(raises, Split("t", 0, 7, 9))


def test_how_a_bug_came_about_travels() -> None:
    """A bug keeps the note with its stack trace when it is sent as data, and when it is pickled."""
    try:
        {}["secret-payload"]
    except KeyError as error:
        bug = BugError.of(error, "stage")
    for back in (
        from_json(to_json(ErrorData.of(bug)), ErrorData).error(),
        pickle.loads(pickle.dumps(bug)),
    ):
        (note,) = back.__notes__
        assert note.startswith("Stack trace:")
        assert note.endswith("\nKeyError")
        assert "test_outcome.py" in note
        assert back.message.startswith(
            "KeyError: this is a bug in windrow, at tests.runner.test_outcome:"
        )
