"""The search for a poison pill, after a worker of a window has died.

The driver halves the window's splits, and decodes each half in a process of its own
(`runner.trial_process`), until one offset is left. Only an offset that kills two such processes,
alone, is a poison pill. A worker may also die because its machine or executor is lost, or
because of too little memory for several messages; then no process dies of a single message, and
the window fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe

import msgspec

from windrow.ingest.errors import DeadWorkerError, RefusedError
from windrow.ingest.model.ledger_records import PoisonPill
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.decoder import RULES, VALUE
from windrow.ingest.ports.engine import LimitsMemory
from windrow.ingest.runner.attempts import Attempt, open_task
from windrow.ingest.runner.context import Pipeline
from windrow.ingest.runner.pickling import pickle_task
from windrow.ingest.runner.poison_pills import record_poison_pill
from windrow.ingest.runner.task import SplitTask
from windrow.ingest.runner.trial_process import (
    DECODING,
    ENDED,
    FAILED,
    OPENING,
    OUT_OF_MEMORY,
    TRANSFORMING,
)
from windrow.ingest.waiting import waiting_for

MEMORY = 4 << 30
"""The bytes of address space of a trial, if the engine doesn't limit the memory of its workers."""

SEARCH_SECONDS = 600
"""The longest time that a search takes."""


_PROGRAM = "from windrow.ingest.runner.trial_process import main; main()"
_STAGES = {DECODING: VALUE, TRANSFORMING: RULES}
_ENDED = "A process that was to decode its messages again couldn't"


class Death(msgspec.Struct, frozen=True):
    """The death of a process that was busy with a range of offsets.

    Attributes:
        start: the first offset of the batch that it was busy with.
        stop: the offset after the last one.
        stage: `value` or `rules`, as for dead letters; empty: it had not read the batch yet.
        reason: how it died.
    """

    start: int
    stop: int
    stage: str
    reason: str


DeathIn = Callable[[int, int], Death | None]
"""Decodes a range of offsets in a process; returns its death, or None if it survived."""


class UnprovenError(Exception):
    """A search ended without a proof; the text is a sentence about what was tried."""


def find_killers(death_in: DeathIn, start: int, stop: int) -> Iterator[tuple[int, Death]]:
    """Yields each offset of a range that kills two processes alone, in ascending order.

    Raises:
        UnprovenError: a range kills, and none of its offsets kills twice alone.
    """
    while start < stop and (death := death_in(start, stop)) is not None:
        first, last = death.start, death.stop - 1  # what is before them survived
        offset = first + bisect_left(
            range(first, last),
            True,
            key=lambda end: death_in(first, end + 1) is not None,
        )
        deaths = death_in(offset, offset + 1), death_in(offset, offset + 1)
        if deaths[0] is None or deaths[1] is None or deaths[0].stage != deaths[1].stage:
            raise UnprovenError(
                f"The offsets {first} to {last} killed a process that decoded them"
                f" ({death.reason}), and none of them did so twice alone"
            )
        yield offset, deaths[1]
        start = offset + 1


def find_batch_end(death_in: DeathIn, first: int, stop: int) -> int:
    """Returns the last offset of a batch that kills whoever reads any of its offsets.

    Args:
        death_in: see `DeathIn`.
        first: the first offset of the batch.
        stop: the end of the range.
    """
    offsets = range(first + 1, stop)
    return first + bisect_left(offsets, True, key=lambda end: death_in(end, end + 1) is None)


def find_poison_pills(
    pipeline: Pipeline, attempt: Attempt, trouble: DeadWorkerError
) -> tuple[PoisonPill, ...]:
    """Finds and records the poison pills of a window.

    Args:
        pipeline: the pipeline.
        attempt: the attempt at the window.
        trouble: the error of its worker.

    Raises:
        DeadWorkerError: none was found; the text says what was tried.
        RefusedError: a batch of messages can't be unpacked.
    """
    engine = pipeline.engine
    memory = engine.worker_memory() if isinstance(engine, LimitsMemory) else None
    try:
        with open_task(pipeline, attempt) as task:
            pills = tuple(
                record_poison_pill(
                    pipeline.ledger,
                    attempt.plan,
                    split,
                    offset,
                    (death.stage, death.reason),
                    pipeline.now(),
                )
                for offset, death, split in _killers(task, attempt.readable, memory or MEMORY)
            )
    except UnprovenError as unproven:
        trouble.message += f". {unproven}"
        raise trouble from unproven
    return pills


def _killers(
    task: SplitTask, splits: Sequence[Split], memory: int
) -> Iterator[tuple[int, Death, Split]]:
    """Yields the killing offsets of all splits, each with its death and its split.

    Raises:
        UnprovenError: there is none; or see `find_killers`.
        RefusedError: a batch of messages can't be unpacked.
    """
    killer = None
    with open_trials(task, memory) as try_range:
        for split in splits:

            def death_in(start: int, stop: int) -> Death | None:
                return try_range(msgspec.structs.replace(split, start=start, stop=stop))  # noqa: B023

            for killer, death in find_killers(death_in, split.start, split.stop):
                if not death.stage:
                    last = find_batch_end(death_in, killer, split.stop)
                    raise RefusedError(
                        f"The messages from offset {killer} to {last} can't be read: the process"
                        f" that unpacks their batch dies ({death.reason})",
                        "read",
                        "Nothing was committed, and none of them is left out. Look at these offsets"
                        " with Kafka's own tools.",
                        split.topic,
                        split.partition,
                        killer,
                    )
                yield killer, death, split
    if killer is None:
        raise UnprovenError(
            "All messages were decoded again in a process of their own, and none killed it, so the"
            " worker's machine may be lost, or short of memory"
        )


@contextmanager
def open_trials(task: SplitTask, memory: int) -> Iterator[Callable[[Split], Death | None]]:
    """Starts a `runner.trial_process`; yields the function that runs a trial in it."""
    ends_at = time.monotonic() + SEARCH_SECONDS
    connection, child_connection = Pipe()
    file = child_connection.fileno()
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(file)],
        pass_fds=[file],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # code of users may print values of messages
        start_new_session=True,
    )

    def try_range(split: Split) -> Death | None:
        seconds = max(1, int(ends_at - time.monotonic()))  # the trial ends itself after them
        with waiting_for(
            f"a process that decodes the offsets {split.start} to {split.stop - 1} of {split.tp} on"
            " trial: a worker died, and windrow looks for a message that kills it"
        ):
            connection.send((split, seconds))
            return death_of(memory, *connection.recv())

    try:
        child_connection.close()
        connection.send_bytes(pickle_task((task, memory)))
        yield try_range
    except (EOFError, OSError) as error:
        raise UnprovenError(_ENDED) from error
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        connection.close()


def death_of(memory: int, state: int, start: int, stop: int, exit_code: int) -> Death | None:
    """Returns the death that a trial ended with; None if it survived.

    Args:
        memory: its limit of memory in bytes.
        state: its last state; see `run_trial` for this one and the others.
        start: the first offset of its batch.
        stop: the offset after the last one.
        exit_code: its exit code.

    Raises:
        UnprovenError: it took too long, was killed from outside, ended before it read anything,
            or raised an error.
    """
    if (state, exit_code) == (ENDED, 0):
        return None
    if exit_code == -signal.SIGALRM:
        raise UnprovenError(
            f"The search for a message that kills it was ended after {SEARCH_SECONDS} seconds"
        )
    if exit_code == -signal.SIGKILL:  # no message sends it: an operator does, or the kernel
        raise UnprovenError(
            f"The process that decoded the offsets {start} to {stop - 1} was killed from outside"
            " (SIGKILL), so the driver's machine or container may have less than"
            f" {memory / (1 << 30):g} GiB of free memory"
        )
    reason = (
        f"more than {memory / (1 << 30):g} GiB of memory"
        if exit_code == OUT_OF_MEMORY
        else f"exit code {exit_code}"
        if exit_code >= 0
        else f"signal {-exit_code}, {signal.strsignal(-exit_code)}"
    )
    if exit_code == FAILED or state == OPENING:
        raise UnprovenError(f"{_ENDED} ({reason})")
    return Death(start, stop, _STAGES.get(state, ""), reason)
