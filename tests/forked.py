"""A fork of the process that a test runs in."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess


def fork(child: Callable[..., object], *arguments: object) -> BaseProcess:
    """One that has begun with `child`.

    It tidies up nothing of this process: to destroy a native client whose threads it
    hasn't ends it.
    """
    process = multiprocessing.get_context("fork").Process(target=child, args=arguments)
    gc.collect()
    gc.freeze()
    try:
        process.start()
    finally:
        gc.unfreeze()
    return process
