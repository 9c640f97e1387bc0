"""Named places at which a test may kill the process: off unless WINDROW_CRASH names one.

    WINDROW_CRASH=commit.before:kill        kill -9 of this process
    WINDROW_CRASH=commit.before:stop        SIGSTOP: a zombie that a test wakes later with SIGCONT,
                            and that then runs on to its end
    WINDROW_CRASH=commit.before:raise       an exception
    WINDROW_CRASH=write.middle:kill:FILE    only the first process that comes by: it makes FILE, and
                            whoever finds it there lives

The idea of fail points compiled into the code, named and off by default, is FreeBSD's fail(9).
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Literal, get_args

RunPoint = Literal[
    "boundary.before",
    "boundary.after",  # around the freezing of each boundary
    "plan.before",
    "plan.after",  # around the freezing of the plan
    # on the executor: after the first batch is staged, after the last
    "write.middle",
    "write.after",
    "dead.before",  # all tasks returned; before the dead letters' commit
    "commit.before",
    "commit.after",  # around the data commit
    "report.before",  # ledger and receipt are in, before the caller hears of it
]
DeadTopicPoint = Literal[
    "dead_topic.begun",  # noted: a committed window's dead letters are about to be published
    "dead_topic.before",
    "dead_topic.after",  # around the commit of their transaction
]
SplitPoint = Literal[
    # around the commit of a transaction that publishes splits of a window
    "split.before",
    "split.after",
]
RoutePoint = Literal["commit.between"]  # a window is in one of its tables, and not in the next
# on the executor: after a batch is staged of what a function of Spark's has given
ReshapePoint = Literal["reshape.middle"]
CrashPoint = RunPoint | DeadTopicPoint | SplitPoint | RoutePoint | ReshapePoint

CRASH_POINTS: tuple[CrashPoint, ...] = get_args(RunPoint)
"""Those that every run comes by."""

DEAD_TOPIC_POINTS: tuple[CrashPoint, ...] = get_args(DeadTopicPoint)
"""Those of one that publishes dead letters."""

SPLIT_POINTS: tuple[CrashPoint, ...] = get_args(SplitPoint)
"""Those of one whose sink shows a window split by split."""


class CrashError(BaseException):
    """Raised by a crash point set to `raise`; not an Exception, so that no handler catches it."""


def crash_point(name: CrashPoint) -> None:
    """Die here if WINDROW_CRASH says so; else nothing."""
    setting = os.environ.get("WINDROW_CRASH")
    if not setting:
        return
    place, how, *once = setting.split(":", 2)
    if place != name or place in _woken or (once and not _first(once[0])):
        return
    if how == "raise":
        raise CrashError(name)
    if how == "stop":
        _woken.add(name)
        # it stops all threads, this one first: os.kill might let it run on
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


_woken: set[str] = set()


def _first(file: str) -> bool:
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
