"""Data loss: a plan is refused if messages are gone, or may be.

The error says which, and has the remedies.
"""

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
    """Checks the plan against a log that starts at this offset."""
    refuse_lost(plan, {T0: start})


def test_a_split_below_the_log_start_is_refused() -> None:
    """The error names the topic-partition, the wanted offsets, the log's start and the remedies."""
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
    """A boundary at a log start is refused, also if nothing is left to read: an expired window
    must not count as empty.
    """
    plan = make_window_plan(start, stop)
    mark = next(
        m
        for m in (*plan.start.marks, *plan.stop.start_marks, *plan.stop.marks)
        if m.origin == "log_start"
    )
    with pytest.raises(
        DataLossError, match=f"Window {WINDOW.key} may have lost its {part} messages: "
    ) as refused:
        refuse_start_at(plan, 5)
    assert list(doubts(plan)) == [T0]
    assert refused.value.message.endswith(f"began at or after it, at offset {mark.offset}")
    assert (
        refused.value.stage,
        refused.value.topic,
        refused.value.partition,
        refused.value.offset,
    ) == ("plan", "t", 0, mark.offset)
    assert refused.value.advice.startswith(WAY_OUT)


def test_who_asks_says_the_way_out() -> None:
    """The caller's advice is used for a certain and for a possible loss."""
    lost_plan, doubted_plan = (
        make_window_plan(boundary(A, [5]), boundary(END, [9])),
        make_window_plan(boundary(A, [5], "log_start"), boundary(END, [9])),
    )
    for plan, start in ((lost_plan, 6), (doubted_plan, 5)):
        with pytest.raises(DataLossError) as refused:
            refuse_lost(plan, {T0: start}, "Ask somebody.")
        assert refused.value.advice.startswith("Ask somebody.")


def test_nothing_is_doubted_of_what_is_not_read() -> None:
    """A position, a removed topic, and splits that were dropped aren't doubted."""
    refuse_start_at(make_window_plan(boundary(A, [5], "position"), boundary(END, [9])), 5)
    refuse_start_at(
        make_window_plan(boundary(A, [5], "log_start"), boundary(END, [5], "removed")), 5
    )
    let_go = msgspec.structs.replace(
        make_window_plan(boundary(A, [5], "log_start"), boundary(END, [9])), splits=()
    )
    refuse_start_at(let_go, 6)
