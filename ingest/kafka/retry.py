"""Timeouts, retries, and the confirmation of bad news from a cluster.

The caller chooses how long a request is repeated in all; the default is
`PATIENCE_SECONDS`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from typing import TypeVar

T = TypeVar("T")
C = TypeVar("C", bound=Collection[object])

PATIENCE_SECONDS = 30.0
"""Seconds in which a request is repeated before it fails."""

REQUEST_SECONDS = 10.0
"""Timeout of one request."""

AGAIN_SECONDS, MOST_SECONDS = 0.1, 2.0
"""Pause between the first two tries of a request, and the longest one between two.

A step of a transaction that librdkafka calls retriable is repeated after the first.
"""

NEW_TOPIC_SECONDS = 1.0
"""Seconds in which a broker may not know of a topic that was just created."""

OTHER_BROKERS_SECONDS = 2.0
"""Seconds that other brokers have to answer once one has refused the client.

The same holds where a broker's certificate was not accepted.
"""

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
"""Most seconds until readers of committed messages see what was committed."""

LOOK_SECONDS = 0.005
"""Pause between two looks whether they do."""

TIMES, APART_SECONDS = 3, 1.5
"""Number of times that bad news has to come to be believed, and the pause in between.

A leader that was just elected may report a log's end too low (KAFKA-7703), and a broker
with old metadata may report a topic as deleted.
"""


def repeated(question: Callable[[], T], worth: Callable[[Exception], bool], patience: float) -> T:
    """Sends a request, again while an error is worth it; returns the answer.

    Args:
        question: sends the request and waits for the answer.
        worth: returns whether an error is worth another try.
        patience: how long to try, in seconds; then the last error is raised.
    """
    deadline, wait = time.monotonic() + patience, AGAIN_SECONDS
    while True:
        # at random, so that many clients don't all repeat their requests at once
        pause = wait + random.uniform(0, AGAIN_SECONDS)  # noqa: S311
        try:
            return question()
        except Exception as why:
            if not worth(why) or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        wait = min(2 * wait, MOST_SECONDS)


def confirmed(suspects: C, look: Callable[[C], C], pause: Callable[[float], None]) -> C:
    """Looks at suspects again, some time apart; returns those that are left each time.

    Args:
        suspects: the suspects of a first look.
        look: returns those of some suspects that still are suspects.
        pause: waits for some seconds.
    """
    for _ in range(TIMES - 1):
        if not suspects:
            break
        pause(APART_SECONDS)
        suspects = look(suspects)
    return suspects
