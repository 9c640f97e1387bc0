"""Where the children of tests come from: one server process, which has imported what
they need and has used none of it.

A child then costs no start-up, and a library that doesn't survive a fork once it was
used (deltalake's, librdkafka's threads) is as new in each. What is not installed is
left out.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.process import BaseProcess

import psutil

# The only one: Python keeps one fork server a process, and what it has imported is decided once,
# by the first child.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "tests.integration.harness",
        "tests.ledger.test_sql",
        "windrow.ingest.formats.json.decoder",
        "windrow.ingest.ledger.sql",
        "windrow.ingest.source.reader.reader",
        "tests.chaos.preloaded",
    ]
)


def stops(process: BaseProcess) -> bool:
    """Return once a child has stopped itself at its crash point; False if it ended instead.

    It is the server's child, not this process's: its state can be looked at, not waited for.
    """
    state = psutil.Process(process.pid)
    deadline = time.monotonic() + 240
    while process.is_alive():
        try:
            if state.status() == psutil.STATUS_STOPPED:
                return True
        except psutil.NoSuchProcess:
            return False
        assert time.monotonic() < deadline, "the child neither stopped nor ended"
        process.join(0.005)
    return False
