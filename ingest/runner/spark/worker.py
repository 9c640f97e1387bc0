"""Preparation and cleanup of a Python worker of Spark, around each task.

Workers live on between runs, on a server for days, and Python loads a module only once. After
an upgrade, or after a change of a module with a schema, an old worker would make rows by the
old rules. So a worker ends before its next task if a file that it has loaded has changed, and
Spark runs the task again in a new worker. A schema file that isn't imported as a module is
loaded again by `ingest.schema.user_code`.
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
"""Folders of installed packages.

A folder's own time changes when a package in it is installed or removed, so the files in it
are not checked.
"""

_LIBRARY = (*_PACKAGES, sysconfig.get_path("stdlib"))
_STARTED = time.time_ns()
_SEEN: dict[str, int | None] = {}

_COLLECTED_AFTER = 50_000
"""Number of new objects after which Python's collector looks for cycles among them.

With Python's default of 700, a fifth of the time to load modules goes into the collector.
"""

_frozen = 0
"""Number of loaded modules when this process last froze its collector's objects."""


@contextmanager
def prepared_worker() -> Iterator[None]:
    """Prepares a worker's process for a Spark task, and cleans up after the task."""
    gc.set_threshold(_COLLECTED_AFTER)
    end_if_stale()
    with keeping():
        yield
    _note_loaded()
    _freeze_loaded()


def end_if_stale() -> None:
    """Ends this process at once (`os._exit`), if a file that it has loaded has changed."""
    if any(changed is None or _changed(file) != changed for file, changed in _SEEN.items()):
        os._exit(1)


def _note_loaded() -> None:
    """Remembers the time of each file that Python has imported, or that was compiled.

    If a file changed after this process began, the process may have loaded its old state. So
    the file counts as changed.
    """
    # a module that windrow makes from a schema file has no spec
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
    """Freezes loaded objects, so that Python's collector skips them.

    PySpark runs a full collection after each task, which would take a tenth of a second.
    Objects are frozen only after a task that loaded modules, because frozen garbage is
    never freed.
    """
    global _frozen  # one per process, like the collector  # noqa: PLW0603
    if len(sys.modules) > _frozen:
        _frozen = len(sys.modules)
        gc.freeze()
