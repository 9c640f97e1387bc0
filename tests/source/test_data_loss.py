"""A plan is refused where messages are gone, or may be; the error says which, and the ways out."""

from __future__ import annotations

import msgspec
import pytest

from tests.source.enumerator.test_splits import (
    END,
    T0,
    WINDOW,
    A,
    begun,
    boundary,
    make_window_plan,
)
from windrow.ingest.errors import DataLossError
from windrow.ingest.model.boundary import Boundary
from windrow.ingest.model.plan import Plan
from windrow.ingest.source.data_loss import WAY_OUT, doubts, refuse_lost


def refuse_start_at(plan: Plan, start: int) -> None:
    """The plan held against a log that starts at an offset."""
    refuse_lost(plan, {T0: start})


def test_a_split_below_the_log_start_is_refused() -> None:
    """The error names the topic-partition, the offset wanted, what is there, and the ways out."""
    plan = make_window_plan(boundary(A, [5]), boundary(END, [9]))
    refuse_start_at(plan, 5)
    with pytest.raises(
        DataLossError,
        match=r"offsets 5 to 9, .* log begins at 6 \(plan, t\[0\]@5\).*source\.on_loss: skip",
    ):
        refuse_start_at(plan, 6)


@pytest.mark.parametrize(
    ("start", "stop", "part"),
    [
        (boundary(A, [5], "log_start"), boundary(END, [9]), "first"),
        (boundary(A, [5]), boundary(END, [9], "log_start"), "last"),
        (boundary(A, [5], "log_start"), boundary(END, [5], "log_start"), "first"),
        (Boundary.of(A, "c", [], []), begun(boundary(END, [9]), "log_start"), "first"),
    ],
)
def test_a_boundary_at_a_log_start_is_refused(start: Boundary, stop: Boundary, part: str) -> None:
    """Also where nothing is left to read: a window that expired whole must not pass as
    one without messages.
    """
    plan = make_window_plan(start, stop)
    mark = next(
        m
        for m in (*plan.start.marks, *plan.stop.start_marks, *plan.stop.marks)
        if m.how == "log_start"
    )
    with pytest.raises(
        DataLossError, match=f"Window {WINDOW.key} may have lost its {part} messages: "
    ) as refused:
        refuse_start_at(plan, 5)
    assert list(doubts(plan)) == [T0]
    assert refused.value.what.endswith(f"began at or after it, at offset {mark.offset}")
    assert (
        refused.value.stage,
        refused.value.topic,
        refused.value.partition,
        refused.value.offset,
    ) == ("plan", "t", 0, mark.offset)
    assert refused.value.do.startswith(WAY_OUT)


def test_who_asks_says_the_way_out() -> None:
    """Of what is lost for certain, and of what may have been."""
    lost_plan, doubted_plan = (
        make_window_plan(boundary(A, [5]), boundary(END, [9])),
        make_window_plan(boundary(A, [5], "log_start"), boundary(END, [9])),
    )
    for plan, start in ((lost_plan, 6), (doubted_plan, 5)):
        with pytest.raises(DataLossError) as refused:
            refuse_lost(plan, {T0: start}, "Ask somebody.")
        assert refused.value.do.startswith("Ask somebody.")


def test_nothing_is_doubted_of_what_is_not_read() -> None:
    """A position is wished, a removed topic is done with, and splits that were taken
    out are let go.
    """
    refuse_start_at(make_window_plan(boundary(A, [5], "position"), boundary(END, [9])), 5)
    refuse_start_at(
        make_window_plan(boundary(A, [5], "log_start"), boundary(END, [5], "removed")), 5
    )
    let_go = msgspec.structs.replace(
        make_window_plan(boundary(A, [5], "log_start"), boundary(END, [9])), splits=()
    )
    refuse_start_at(let_go, 6)
