"""Pickled tasks, as workers get them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from windrow.ingest.errors import (
    PLUGIN_ADVICE,
    BugError,
    WindrowError,
    find_package_owners,
    name_with_owner,
)


def pickle_task(task: object, dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
    """Pickles a task.

    Args:
        task: the task.
        dumps: pickles an object.

    Raises:
        WindrowError: a file that is pickled with the task can't be read.
        BugError: the task can't be pickled. The text names the object of a plugin that can't
            be pickled, if there is one.
    """
    try:
        return bytes(dumps(task))
    except WindrowError:
        raise
    except Exception as failed:
        for part in _plugin_parts(task):
            try:
                dumps(part)
            except Exception as error:
                raise BugError(
                    f"{name_with_owner(part)} can't be pickled ({type(error).__name__})",
                    "setup",
                    "Tasks need it: keep settings in it, and make the rest in open."
                    f" {PLUGIN_ADVICE}",
                ) from error
        raise BugError.of(failed, "setup") from failed


def _plugin_parts(task: object) -> list[object]:
    """Returns the plugins' objects and functions in a task, up to one that fails to pickle."""
    roots, parts = find_package_owners().keys() - {"windrow"}, list[object]()

    class Parts(pickle.Pickler):
        def persistent_id(self, part: object) -> None:
            if str(getattr(part, "__module__", "")).partition(".")[0] in roots:
                parts.append(part)

    with suppress(Exception):
        Parts(io.BytesIO()).dump(task)
    return parts
