"""What a Python worker of Spark's does before and behind a task.

Workers live on between runs, on a server for days, and Python loads a module once: a
run after an upgrade, or after a module with a schema was corrected, would get rows by
the old rules. So a worker whose loaded files have changed since ends before its next
task, and Spark runs the task again in a new one. (A schema in a file of its own is read
anew by `ingest.schema.user_code`.)
"""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windrow.ingest.client_cache import keeping
from windrow.ingest.native.calling import loaded_sources

_PACKAGES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})
"""Folders whose own time changes when a package in them is installed or removed.

So their files needn't be looked at.
"""

_LIBRARY = (*_PACKAGES, sysconfig.get_path("stdlib"))
_STARTED = time.time_ns()
_SEEN: dict[str, int | None] = {}

_COLLECTED_AFTER = 50_000
"""New objects until Python's collector looks for cycles among them.

After 700, which is Python's own number, collecting takes a fifth of loading.
"""

_frozen = 0
"""Number of loaded modules when this process last froze its collector's objects."""


@contextmanager
def working() -> Iterator[None]:
    """Prepares a worker's process for a Spark task, and cleans up behind it."""
    gc.set_threshold(_COLLECTED_AFTER)
    end_if_stale()
    with keeping():
        yield
    _note_loaded()
    _freeze_loaded()


def end_if_stale() -> None:
    """Ends this process, as if it was killed, if a file that it has loaded has changed."""
    if any(changed is None or _changed(file) != changed for file, changed in _SEEN.items()):
        os._exit(1)


def _note_loaded() -> None:
    """Remembers the time of each file that Python has imported or that was compiled.

    A file that changed since this process began may have been loaded before that: it is
    stale.
    """
    # None: modules made by windrow itself, as schemas of files are
    specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
    files = {
        spec.origin
        for spec in specs
        if spec is not None and spec.has_location and not str(spec.origin).startswith(_LIBRARY)
    }
    for file in {*_PACKAGES, *files, *loaded_sources()} - _SEEN.keys():
        changed = _changed(file)
        if changed is not None:
            _SEEN[file] = changed if changed < _STARTED else None


def _changed(file: str) -> int | None:
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return None


def _freeze_loaded() -> None:
    """Tells Python's collector that loaded objects stay.

    PySpark has it look through everything after each task, a tenth of a second. Only
    after a job that loaded something: frozen objects are never looked at again.
    """
    global _frozen  # one per process, as the collector is  # noqa: PLW0603
    if len(sys.modules) > _frozen:
        _frozen = len(sys.modules)
        gc.freeze()
