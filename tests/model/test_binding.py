"""A table takes one pipeline, on one grid, of one ledger: whoever else comes is told which, and the first that differs."""

from __future__ import annotations

import pytest

from ingest.errors import BindingError, GridError, WindrowError
from ingest.model.binding import OTHER_LEDGER, Binding, refuse_other_binding

BOUND = Binding("p", "l", "hourly")


def test_whose_the_table_is_may_come() -> None:
    """All three alike."""
    refuse_other_binding("/t", BOUND, Binding("p", "l", "hourly"))


@pytest.mark.parametrize(
    ("mine", "kind", "what", "do"),
    [
        (Binding("q", "m", "daily"), BindingError, "the table /t belongs to pipeline 'p', not 'q'", "One table takes one pipeline: "),
        (
            Binding("p", "m", "daily"),
            GridError,
            "the table /t was begun with hourly windows, not daily",
            "Set the grid back to hourly, or ",
        ),
        (Binding("p", "m", "hourly"), BindingError, "the table /t belongs to ledger l, not m", OTHER_LEDGER),
    ],
)
def test_who_else_comes_is_refused(mine: Binding, kind: type[WindrowError], what: str, do: str) -> None:
    """The pipeline first: what belongs to another one has another ledger and grid as well."""
    with pytest.raises(kind) as told:
        refuse_other_binding("/t", BOUND, mine)
    assert (type(told.value), told.value.what, told.value.stage) == (kind, what, "setup")
    assert told.value.do.startswith(do)
