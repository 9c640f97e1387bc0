"""How patiently a cluster is asked: the waits, the tries, and what is believed only
when it is told again.

For how long a question is repeated in all is the caller's to say; `PATIENCE_SECONDS`
where nobody does.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from typing import TypeVar

T = TypeVar("T")
C = TypeVar("C", bound=Collection[object])

PATIENCE_SECONDS = 30.0
"""How long one question is asked again before it is said that nobody answers."""

REQUEST_SECONDS = 10.0
"""How long one request may take."""

AGAIN_SECONDS, MOST_SECONDS = 0.1, 2.0
"""Between the first two tries of a question, and at most between two.

A step that the client says may be repeated waits no longer than the first.
"""

NEWS_SECONDS = 1.0
"""How long the news of a topic that was just made may take to reach the broker that is asked."""

OTHERS_SECONDS = 2.0
"""How long other brokers have to answer once one has turned the client away, or its
certificate was not accepted.
"""

HEAR_SECONDS = 0.05
"""How often a client that waits for an answer is asked what it has heard of its connections."""

POLL_SECONDS = 0.05
"""How long a consumer is waited for before it is looked whether it goes on at all."""

QUIET_SECONDS = 1.0
"""After so long it is doubted that anything will come: the client tells late, or never,
of a topic that isn't there or a refused login.
"""

CONNECT_SECONDS = 5.0
"""How long a client may take to find a broker, for a question that only saves time."""

CALL_SECONDS = 30.0
"""How long one call of a transaction may take."""

LEAVE_SECONDS = 5.0
"""How long a transaction that is given up may take to end; what can't be ended the
broker ends by itself.
"""

SEEN_SECONDS = 5.0
"""How long readers of committed messages may take to come past what was committed."""

LOOK_SECONDS = 0.005
"""Between two looks whether they have."""

TIMES, APART_SECONDS = 3, 1.5
"""How often, and how far apart, bad news is told before it is believed: a leader that
was just elected may say that a log ends too early (KAFKA-7703), and a broker that is
behind with its metadata that a topic is gone.
"""


def repeated(question: Callable[[], T], worth: Callable[[Exception], bool], patience: float) -> T:
    """An answer, asked for again as long as what failed is `worth` another try and
    there is patience, in seconds; else that is raised.
    """
    deadline, wait = time.monotonic() + patience, AGAIN_SECONDS
    while True:
        pause = wait + random.uniform(  # noqa: S311
            0, AGAIN_SECONDS
        )  # no secret: many that ask at once shall not go on doing so
        try:
            return question()
        except Exception as why:
            if not worth(why) or time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        wait = min(2 * wait, MOST_SECONDS)


def surely(suspects: C, look: Callable[[C], C], pause: Callable[[float], None]) -> C:
    """What is left of the suspects of a first look after each of the other looks.

    `look`: those of some suspects that still are.
    """
    for _ in range(TIMES - 1):
        if not suspects:
            break
        pause(APART_SECONDS)
        suspects = look(suspects)
    return suspects
