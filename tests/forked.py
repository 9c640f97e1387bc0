"""A fork of the process that runs the test."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess


def fork(child: Callable[..., object], *arguments: object) -> BaseProcess:
    """Starts a fork of this process that runs `child`.

    The fork never garbage-collects objects of this process. It doesn't have the threads of the
    native clients, and would die if it destroyed such a client.
    """
    process = multiprocessing.get_context("fork").Process(target=child, args=arguments)
    gc.collect()
    gc.freeze()
    try:
        process.start()
    finally:
        gc.unfreeze()
    return process
