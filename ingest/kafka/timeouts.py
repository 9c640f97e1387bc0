"""Timeouts of requests to a cluster, pauses between them, and the confirmation of bad news.

The caller chooses how long a request is repeated in all; the default is
`PATIENCE_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

C = TypeVar("C", bound=Collection[object])

PATIENCE_SECONDS = 30.0
"""Seconds for which a request is repeated before it fails."""

REQUEST_SECONDS = 10.0
"""Timeout of one request."""

AGAIN_SECONDS = 0.1
"""Pause between two tries of a producer's step that librdkafka calls retriable.

It is also the pause between two requests about a topic that may be new.
"""

NEW_TOPIC_SECONDS = 1.0
"""Seconds for which a broker may not know a topic that was just created."""

OTHER_BROKERS_SECONDS = 2.0
"""Seconds that other brokers have to answer after a certificate was not accepted."""

ERROR_POLL_SECONDS = 0.05
"""Pause between two looks at a client's errors while it waits for an answer."""

POLL_SECONDS = 0.05
"""Timeout of one poll of a consumer."""

IDLE_SECONDS = 1.0
"""Seconds without a message after which the cluster is asked for the reason.

The client reports a deleted topic or a refused login late, or never.
"""

CONNECT_SECONDS = 5.0
"""Timeout of a request that is sent only to save time."""

CALL_SECONDS = 30.0
"""Timeout of one call of a transaction."""

LEAVE_SECONDS = 5.0
"""Timeout of the abort of a transaction; without it, the broker aborts it later."""

SEEN_SECONDS = 5.0
"""Most seconds until readers of committed messages see a commit."""

LOOK_SECONDS = 0.005
"""Pause between two checks whether readers see a commit."""

TIMES, APART_SECONDS = 3, 1.5
"""How many times bad news has to come to be believed, and the pause in between, in seconds.

A leader that was just elected may report a log's end that is too low (KAFKA-7703), and a
broker with old metadata may report a topic as deleted.
"""


def confirm(suspects: C, look: Callable[[C], C], pause: Callable[[float], None]) -> C:
    """Looks at suspects again, some time apart; returns those that remain each time.

    Args:
        suspects: the bad news of a first look.
        look: returns the given suspects that still are suspects.
        pause: waits for some seconds.
    """
    for _ in range(TIMES - 1):
        if not suspects:
            break
        pause(APART_SECONDS)
        suspects = look(suspects)
    return suspects
