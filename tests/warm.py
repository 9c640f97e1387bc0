"""The fork server from which tests start their child processes.

The server has imported what the children need, and has used none of it. So a child starts
quickly. Some libraries don't survive a fork after they were used (deltalake, and librdkafka's
threads); each child gets them unused. Modules that aren't installed are left out.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.process import BaseProcess

import psutil

# Python keeps one fork server per process. The first child decides what the server imports.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "tests.integration.harness",
        "tests.ledger.test_sql",
        "windrow.ingest.formats.json.decoder",
        "windrow.ingest.ledger.sql",
        "windrow.ingest.source.reader.reader",
        "tests.chaos.preloaded",
        "tests.faults.child",
    ]
)


def stops(process: BaseProcess) -> bool:
    """Returns whether a child stopped itself at its crash point; False if it ended instead.

    The child belongs to the fork server. So this process can look at its state, but not wait
    for it.
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
