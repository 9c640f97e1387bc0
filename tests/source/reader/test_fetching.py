"""Whether a client that has read one split may go on with the next one without asking the
cluster.
"""

from __future__ import annotations

import pytest

from windrow.ingest.source.reader.fetching import LastMessage, Start, can_continue


@pytest.mark.parametrize(
    ("last", "witness", "goes"),
    [
        (LastMessage(9, 3), 3, True),
        (LastMessage(9, 2), 3, True),
        (LastMessage(9, 3), None, True),
        (LastMessage(9, -1), None, True),
        (LastMessage(9, 4), 3, False),  # written after the log was cut off below the start
        (LastMessage(9, -1), 3, False),  # unknown when it was written
        (LastMessage(8, 3), 3, False),  # a marker is between
        (LastMessage(10, 3), 3, False),
        (None, 3, False),
        (None, None, False),
    ],
)
def test_only_the_message_before_a_start_answers_for_the_cluster(
    last: LastMessage | None, witness: int | None, goes: bool
) -> None:
    """A client goes on only right after a message that was written no later than the start was
    frozen.
    """
    assert can_continue(last, Start("t", 0, 10, witness)) is goes
