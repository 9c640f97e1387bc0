"""Runs of a window in other processes, which may be killed or stopped."""

from __future__ import annotations

import os
from multiprocessing.process import BaseProcess
from typing import NoReturn

from tests.sinks.kafka.twins import TWINS
from tests.sinks.kafka.world import sink_at
from tests.warm import SERVER
from windrow.ingest.ports.sink import AlreadyDone, Done
from windrow.ingest.testing.contracts.windows import staged_receipt

DONE, ALREADY, OTHER = 0, 1, 2


def start_attempt(
    location: str, number: int, name: str, crash: str = "", twin: str | None = None
) -> BaseProcess:
    """Starts an attempt at a window.

    Args:
        location: the sink's location.
        number: number of the window.
        name: name of the attempt.
        crash: value of WINDROW_CRASH.
        twin: name of a broken sink to run instead of the real one.
    """
    process = SERVER.Process(target=_child, args=(location, number, name, crash, twin))
    process.start()
    return process


def join_attempt(process: BaseProcess) -> int | None:
    """Waits for the end of an attempt, and returns its exit code: negative for a signal."""
    process.join(60)
    return process.exitcode


def _child(location: str, number: int, name: str, crash: str, twin: str | None) -> NoReturn:
    os.environ["WINDROW_CRASH"] = crash
    code = OTHER
    try:
        sink = sink_at(location) if twin is None else TWINS[twin](location)
        receipt, staged = staged_receipt(sink, number, 0, name)
        sink.commit_dead(receipt.plan, name, staged)
        code = {Done: DONE, AlreadyDone: ALREADY}.get(type(sink.commit(receipt, staged)), OTHER)
    finally:
        os._exit(code)
