"""A plan holds what lies between two boundaries, and is refused where the cluster is another one or messages are gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ingest.errors import DataLossError, IdentityError
from ingest.model import Boundary, How, Mark, Plan, Split, TopicIdentity, TopicPartition, Window
from ingest.plan.splits import make_plan, refuse_expired, refuse_other_identity

A = datetime(2026, 1, 2, 3, tzinfo=UTC)
WINDOW = Window("p", A, A + timedelta(hours=1))


def boundary(label: datetime, offsets: list[int], how: How = "settled", cluster: str = "c", topic_id: str = "id") -> Boundary:
    """A boundary of topic t with these offsets, found the same way in all partitions."""
    marks = [Mark("t", p, offset, how, leader_epoch=p) for p, offset in enumerate(offsets)]
    return Boundary.of(label, cluster, [TopicIdentity("t", topic_id)], marks)


def planned(start: Boundary, stop: Boundary) -> Plan:
    """The window's plan between them."""
    return make_plan(WINDOW, start, stop, "sink")


def test_one_split_per_partition_that_holds_offsets() -> None:
    """An empty range needs no task; a partition that appeared in the window begins at 0."""
    plan = planned(boundary(A, [5, 7]), boundary(WINDOW.end, [9, 7, 3]))
    assert plan.splits == (Split("t", 0, 5, 9, 0), Split("t", 2, 0, 3, None))
    assert (plan.window, plan.sink) == (WINDOW, "sink")


def test_a_window_without_messages_is_a_plan_without_splits() -> None:
    """Nothing between the boundaries is a plan too."""
    assert planned(boundary(A, [5]), boundary(WINDOW.end, [5])).splits == ()


@pytest.mark.parametrize("stop", [boundary(WINDOW.end, [3]), boundary(WINDOW.end, [])])
def test_inverted_boundaries_are_no_plan(stop: Boundary) -> None:
    """A boundary below its predecessor was not frozen by this ledger: never a negative split, never a silent one."""
    with pytest.raises(ValueError, match="inverted"):
        planned(boundary(A, [5]), stop)


def test_boundaries_of_another_window_are_no_plan() -> None:
    """Labels must be the window's own."""
    with pytest.raises(ValueError, match="not those of window"):
        planned(boundary(A, [5]), boundary(WINDOW.end + timedelta(hours=1), [9]))


@pytest.mark.parametrize("stop", [boundary(WINDOW.end, [9], cluster="other"), boundary(WINDOW.end, [9], topic_id="other")])
def test_boundaries_of_two_sources_are_refused(stop: Boundary) -> None:
    """Offsets of a topic that was made anew can't end a window of the old one."""
    with pytest.raises(IdentityError, match="other"):
        planned(boundary(A, [5]), stop)


@pytest.mark.parametrize(("cluster", "topics"), [("other", {"t": "id"}), ("c", {"t": "other"}), ("c", {})])
def test_a_plan_is_refused_on_another_source(cluster: str, topics: dict[str, str]) -> None:
    """The cluster and the topic must be the ones that were planned on."""
    plan = planned(boundary(A, [5]), boundary(WINDOW.end, [9]))
    refuse_other_identity(plan, "c", {"t": "id"})
    with pytest.raises(IdentityError):
        refuse_other_identity(plan, cluster, topics)


def test_a_split_below_the_log_start_is_refused() -> None:
    """The error names the topic-partition, the offset wanted and what is there."""
    plan = planned(boundary(A, [5]), boundary(WINDOW.end, [9]))
    refuse_expired(plan, {TopicPartition("t", 0): 5})
    with pytest.raises(DataLossError, match=r"offsets 5 to 9, .* still there is 6 \(plan, t\[0\]@5\)"):
        refuse_expired(plan, {TopicPartition("t", 0): 6})


@pytest.mark.parametrize(
    ("start", "stop", "part"),
    [
        (boundary(A, [5], "log_start"), boundary(WINDOW.end, [9]), "first"),
        (boundary(A, [5]), boundary(WINDOW.end, [9], "log_start"), "last"),
        (boundary(A, [5], "log_start"), boundary(WINDOW.end, [5], "log_start"), "first"),
    ],
)
def test_a_boundary_at_a_log_start_is_refused(start: Boundary, stop: Boundary, part: str) -> None:
    """Also where nothing is left to read: a window that expired whole must not pass as one without messages."""
    with pytest.raises(DataLossError, match=f"lost its {part} messages"):
        refuse_expired(planned(start, stop), {TopicPartition("t", 0): 5})
