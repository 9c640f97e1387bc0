"""What an engine's tries bring back."""

from __future__ import annotations

import pickle
import sys

import pytest
from polars.exceptions import PanicException

from windrow.ingest.errors import BugError
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import Split
from windrow.ingest.model.staged_split import Staged
from windrow.ingest.runner.outcome import ErrorData, is_panic, outcome_of, result_of


def test_the_panics_of_libraries_are_known() -> None:
    """What polars, as all that is built with pyo3, raises for a panic is taken for one;
    what ends a process is not.
    """
    assert is_panic(PanicException("at the disco"))
    assert not any(is_panic(kind()) for kind in (KeyboardInterrupt, SystemExit, GeneratorExit))


def test_a_task_that_exits_brings_its_error_back() -> None:
    """A `sys.exit` of whoever's code is told as an exception is: it doesn't end the worker, which
    Spark would start again in vain.
    """

    def exits(_: Split) -> Staged:
        sys.exit("secret")

    with pytest.raises(BugError, match=r"^SystemExit: this is a bug in windrow, at ") as told:
        result_of(outcome_of(exits, Split("t", 0, 7, 9)))
    assert "secret" not in str(told.value)


def test_how_a_bug_came_about_travels() -> None:
    """The stack trace's note is there after a bug has come as data, and after it was pickled."""
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
        assert back.what.startswith(
            "KeyError: this is a bug in windrow, at tests.runner.test_outcome:"
        )
