"""Crash points: named places where a test can kill the process.

They do nothing unless WINDROW_CRASH names one:

    WINDROW_CRASH=commit.before:kill        kill -9 of this process
    WINDROW_CRASH=commit.before:stop        SIGSTOP; a test wakes the process later with
                                            SIGCONT, and it runs on to its end
    WINDROW_CRASH=commit.before:raise       an exception
    WINDROW_CRASH=write.middle:kill:FILE    only the first process that comes by is killed:
                                            it makes FILE, and the others see that

The idea of fail points in the code, named and off by default, is FreeBSD's fail(9).
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Literal, get_args

RunPoint = Literal[
    # before and after each boundary is frozen
    "boundary.before",
    "boundary.after",
    # before and after the plan is frozen
    "plan.before",
    "plan.after",
    # on the executor, after the first batch and after the last batch is staged
    "write.middle",
    "write.after",
    # after all tasks, before the commit of the dead letters
    "dead.before",
    # before and after the commit of the data
    "commit.before",
    "commit.after",
    # after the receipt is in the ledger, before the run returns
    "report.before",
]
DeadTopicPoint = Literal[
    # before and after a window's dead letters are written to their topic
    "dead_topic.before",
    "dead_topic.after",
]
SplitPoint = Literal[
    # before and after the commit of a transaction that publishes splits of a window
    "split.before",
    "split.after",
]
# after a window is committed to one of its tables, before the next
PoisonPoint = Literal[
    # before and after a poison pill that has died twice is recorded in the ledger
    "poison.before",
    "poison.after",
]
RoutePoint = Literal["commit.between"]
# on the executor, after a batch of the function's rows is staged
TransformPoint = Literal["transform.middle"]
CrashPoint = RunPoint | DeadTopicPoint | SplitPoint | PoisonPoint | RoutePoint | TransformPoint

CRASH_POINTS: tuple[CrashPoint, ...] = get_args(RunPoint)
"""The crash points of every run."""

DEAD_TOPIC_POINTS: tuple[CrashPoint, ...] = get_args(DeadTopicPoint)
"""The crash points of a run that publishes dead letters."""

SPLIT_POINTS: tuple[CrashPoint, ...] = get_args(SplitPoint)
"""The crash points of a run whose sink shows a window split by split."""


class CrashError(BaseException):
    """Raised by a crash point whose action is `raise`.

    It isn't an Exception, so `except Exception` doesn't catch it.
    """


def crash_point(name: CrashPoint) -> None:
    """Interrupts the process here by a kill, a stop or an exception, if WINDROW_CRASH says so."""
    setting = os.environ.get("WINDROW_CRASH")
    if not setting:
        return
    point, action, *once = setting.split(":", 2)
    if point != name or point in _stopped or (once and not _comes_first(once[0])):
        return
    if action == "raise":
        raise CrashError(name)
    if action == "stop":
        _stopped.add(name)
        # pthread_kill stops this thread at once, then all others. os.kill could return before
        # the signal is delivered, and this thread would run on.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


_stopped: set[str] = set()
"""The points at which this process was stopped. It stops only once at each."""


def _comes_first(file: str) -> bool:
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
