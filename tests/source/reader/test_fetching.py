"""Whether a client that has read one split may go on with the next one without asking
the cluster.
"""

from __future__ import annotations

import pytest

from windrow.ingest.source.reader.fetching import Last, Start, goes_on


@pytest.mark.parametrize(
    ("last", "witness", "goes"),
    [
        (Last(9, 3), 3, True),
        (Last(9, 2), 3, True),
        (Last(9, 3), None, True),
        (Last(9, -1), None, True),
        (Last(9, 4), 3, False),  # it was written after the log was cut off below the start
        (Last(9, -1), 3, False),  # nobody knows when it was written
        (Last(8, 3), 3, False),  # a marker lies between
        (Last(10, 3), 3, False),
        (None, 3, False),
        (None, None, False),
    ],
)
def test_only_the_message_before_a_start_answers_for_the_cluster(
    last: Last | None, witness: int | None, goes: bool
) -> None:
    """A client goes on only right behind a message that was written no later than the
    start was frozen.
    """
    assert goes_on(last, Start("t", 0, 10, witness)) is goes
