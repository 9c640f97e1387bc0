"""The one judge of every sink: what is there already, what may be committed, and what is refused, in this order."""

from __future__ import annotations

import pytest

from ingest.errors import BindingError, GridError, OverlapError, RefusedError
from ingest.model.binding import Binding
from ingest.model.receipt import Committed, Receipt
from ingest.sinks.decision import Seen, decide
from tests.sinks.beside import BINDING
from tests.sinks.delta.things import plan, receipt, with_digest


class Table:
    """Plans ask only for the table's name."""

    identity = "some:table"


def proposed(number: int, generation: int = 0, offsets: tuple[int, int] | None = None, attempt: str = "a1") -> Receipt:
    """A receipt of window n."""
    return receipt(plan(Table(), number, offsets), [], generation, attempt)  # type: ignore[arg-type]


def committed(number: int, generation: int = 0, offsets: tuple[int, int] | None = None) -> Committed:
    """The same as the table holds it."""
    return Committed(proposed(number, generation, offsets), 7)


def seen(made: Receipt, *held: Committed, binding: Binding = BINDING) -> Seen:
    """What a sink sees that can name all that it holds."""
    return Seen.among(made, "t", binding, held)


def test_an_empty_table_takes_a_window() -> None:
    """Nothing is there in its place."""
    assert decide(proposed(0), seen(proposed(0))) is None


@pytest.mark.parametrize(("generation", "there"), [(0, 0), (0, 1), (1, 1)])
def test_what_is_there_already_is_named(generation: int, there: int) -> None:
    """The same generation, or a later one, stands in place of the receipt; it is the one that the table holds."""
    held = committed(0, there)
    assert decide(proposed(0, generation, attempt="late"), seen(proposed(0), held)) is held


def test_the_next_generation_replaces() -> None:
    """One more than what is there may be committed; its own offsets are no overlap."""
    assert decide(proposed(1, 1), seen(proposed(1), committed(0), committed(1), committed(2))) is None


@pytest.mark.parametrize(("generation", "held"), [(1, ()), (2, (committed(0, 0),))])
def test_no_generation_is_left_out(generation: int, held: tuple[Committed, ...]) -> None:
    """A replacement needs the generation before it."""
    with pytest.raises(RefusedError, match="generation"):
        decide(proposed(0, generation), seen(proposed(0), *held))


def test_another_plan_is_refused() -> None:
    """A window that is there under another plan is neither done nor to be committed."""
    other = with_digest(proposed(0), plan(Table(), 0, offsets=(0, 9)))  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="another plan"):
        decide(other, seen(other, committed(0)))


def test_an_overlap_is_refused() -> None:
    """A range that another window holds is refused, wherever that window lies."""
    made = proposed(5, offsets=(9, 15))
    with pytest.raises(OverlapError, match="already committed under window"):
        decide(made, seen(made, committed(0)))


@pytest.mark.parametrize(("offsets", "neighbour"), [((11, 20), 0), ((10, 19), 2)])
def test_a_window_joins_on(offsets: tuple[int, int], neighbour: int) -> None:
    """What lies between a window and the committed ones beside it would be in no window."""
    made = proposed(1, offsets=offsets)
    with pytest.raises(BindingError, match="two ledgers"):
        decide(made, seen(made, committed(neighbour)))


def test_a_window_further_away_says_nothing() -> None:
    """Between windows that aren't adjacent, others may come: only the neighbours are held against it."""
    made = proposed(3, offsets=(33, 40))
    assert decide(made, seen(made, committed(0), committed(1))) is None


@pytest.mark.parametrize(
    ("bound", "error"),
    [
        (Binding("returns", "ledger-1", "hourly"), BindingError),
        (Binding("orders", "ledger-2", "hourly"), BindingError),
        (Binding("orders", "ledger-1", "daily"), GridError),
    ],
)
def test_another_binding_comes_first(bound: Binding, error: type[RefusedError]) -> None:
    """A table that is bound to something else takes nothing, and doesn't say that a window is done: also where it is there."""
    for held in ((), (committed(0),)):
        with pytest.raises(error, match="the table t "):
            decide(proposed(0), seen(proposed(0), *held, binding=bound))
