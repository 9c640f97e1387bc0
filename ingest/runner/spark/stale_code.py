"""Checks whether the code that a Python worker has loaded is still that on disk.

Workers live on between runs, on a server for days, and Python loads a module once: a
run after an upgrade, or after a module with a schema was corrected, would get rows by
the old rules. So a worker whose loaded files have changed since ends before its next
job, and Spark runs the task again in a new one. (A schema in a file of its own is read
anew by `ingest.schema.load`.)
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from pathlib import Path

from windrow.ingest.native.calling import loaded_sources

_PACKAGES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})
"""Folders whose own time changes when a package in them is installed or removed.

So their files needn't be looked at.
"""

_LIBRARY = (*_PACKAGES, sysconfig.get_path("stdlib"))
_BORN = time.time_ns()
_SEEN: dict[str, int | None] = {}


def note_loaded() -> None:
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
            _SEEN[file] = changed if changed < _BORN else None


def is_stale() -> bool:
    """Returns whether a file has changed since it was remembered."""
    return any(changed is None or _changed(file) != changed for file, changed in _SEEN.items())


def end_if_stale() -> None:
    """Ends this process, as if it was killed, if its code is stale.

    To be called before a job.
    """
    if is_stale():
        os._exit(1)


def _changed(file: str) -> int | None:
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return None
