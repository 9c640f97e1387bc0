"""The process that decodes ranges of messages on trial, for `runner.poison_search`.

It has no thread and no client of Kafka. Each trial is a fork of it, which may die. A trial reads
a batch, closes its client, and then decodes and transforms the batch; it stages nothing. The
client is closed first because it unpacks later messages in threads of its own, and may die of
these.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
from contextlib import suppress
from mmap import mmap
from multiprocessing.connection import Connection
from typing import NoReturn

import pyarrow as pa

from windrow.ingest.model.plan import Split
from windrow.ingest.ports.decoder import Decoded, checked_verdict
from windrow.ingest.ports.reader import read_until
from windrow.ingest.runner.poison_pills import leaving_out
from windrow.ingest.runner.task import SplitTask

OPENING, READING, DECODING, TRANSFORMING, ENDED = range(5)
"""The states of a trial."""

FAILED, OUT_OF_MEMORY = 97, 98
"""Exit codes of a trial that raised an error, and of one that raised MemoryError."""


def main() -> None:
    """Runs trials until the driver closes its end of the connection, or dies.

    Its argument is the number of the connection's file. Over this come the task and the limit
    of memory in bytes, then a split and its limit in seconds for each trial. The answer to a
    trial is the result of `run_trial`.
    """
    driver = Connection(int(sys.argv[1]))
    with suppress(EOFError):
        task, memory = pickle.loads(driver.recv_bytes())  # safe: the driver's bytes  # noqa: S301
        task.decoder.columns  # loads most modules once, and not in each trial  # noqa: B018
        while True:
            split, seconds = driver.recv()
            driver.send(run_trial(task, split, memory, seconds))


def run_trial(task: SplitTask, split: Split, memory: int, seconds: int) -> list[int]:
    """Runs one trial in a fork of this process.

    Args:
        task: the task of the range.
        split: the range.
        memory: the limit of memory in bytes.
        seconds: the limit of time.

    Returns:
        Its last state, the first offset of the batch that it was busy with, the offset after
        the last one, and its exit code; a negative one is a signal.
    """
    progress = memoryview(mmap(-1, 24)).cast("q")  # shared with the fork
    process_id = os.fork()
    if process_id == 0:
        _decode_and_exit(task, split, progress, memory, seconds)
    exit_code = os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])
    return [*progress, exit_code]


def _decode_and_exit(
    task: SplitTask, split: Split, progress: memoryview[int], memory: int, seconds: int
) -> NoReturn:
    exit_code = FAILED
    try:
        signal.alarm(seconds)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        decode_range(task, split, progress)
        exit_code = 0
    except MemoryError:
        exit_code = OUT_OF_MEMORY
    finally:
        os._exit(exit_code)


def decode_range(task: SplitTask, split: Split, progress: memoryview[int]) -> None:
    """Reads, decodes and transforms the messages of a range, batch by batch.

    Args:
        task: the task of the range.
        split: the range.
        progress: gets the state and the offsets; see `run_trial`.
    """
    decode, transform = task.decoder.open(), task.transform.open()

    def judge(messages: pa.RecordBatch) -> Decoded:
        progress[0] = DECODING
        decoded = checked_verdict(task.decoder, decode(messages))
        progress[0] = TRANSFORMING
        return transform(decoded, messages)

    def keep(batch: pa.RecordBatch) -> bool:
        batches.append(batch)
        return True

    batches = list[pa.RecordBatch]()
    judge_others, position = leaving_out(task.poison_pills, split, judge), split.start
    while position < split.stop:
        progress[0], progress[1], progress[2] = READING, position, split.stop
        batches.clear()
        rest = Split(split.topic, split.partition, position, split.stop, None, split.stop_epoch)
        read_until(task.reader, rest, keep)
        if not batches:
            break
        offsets = batches[0]["offset"]
        progress[1], progress[2] = offsets[0].as_py(), offsets[-1].as_py() + 1
        judge_others(batches[0])
        position = progress[2]
    progress[0] = ENDED
