"""Checks whether a table can be written at a place, and names the user who may not write."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from pwd import getpwuid
from tempfile import TemporaryFile

from windrow.ingest.errors import SpecError
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.put_if_absent import TRIALS, S3Puts, has_s3

_FULL = {errno.ENOSPC, errno.EDQUOT}


def refuse_unwritable(uri: str, setting: str = "sink.path") -> None:
    """Refuses a local place where this user may not write. Writes nothing.

    Args:
        uri: the place of the table, or of its warehouse.
        setting: the spec's setting that names the place.

    Raises:
        SpecError: the place can't be written. The error names the user, the folder and its
            owner.
    """
    if "://" in uri and not uri.startswith("file://"):
        return
    nearest = nearest_folder(uri)
    if not Path(nearest).is_dir():
        raise _refusal(uri, setting, nearest, errno.ENOTDIR)
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise _refusal(uri, setting, nearest, errno.EACCES)


def try_writing(uri: str) -> None:
    """Writes a file below a place, and removes it.

    A full disk passes, because it may have room later. In S3 it puts a file twice on
    condition, if the extra `s3` is installed. Other object stores aren't tried.

    Raises:
        SpecError: as `refuse_unwritable`; or a store lacks a feature.
        UnreachableError: a store doesn't answer.
    """
    if uri.startswith("s3://") and has_s3():
        S3Puts(Place(uri)).try_place()
    if "://" in uri and not uri.startswith("file://"):
        return
    nearest = nearest_folder(uri)
    trials = Path(nearest, TRIALS)
    try:
        trials.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=trials):
            return
    except OSError as error:
        if error.errno not in _FULL:
            raise _refusal(uri, "sink.path", nearest, error.errno or 0) from error
    finally:
        remove_trials(nearest)


def remove_trials(folder: str) -> None:
    """Removes the folder of trials from a local folder, unless it has files of others."""
    for trials in (Path(folder, TRIALS), Path(folder, TRIALS).parent):
        with suppress(OSError):
            trials.rmdir()


def nearest_folder(uri: str) -> str:
    """Returns the nearest existing folder of a local place; a URI of a store as it is."""
    if "://" in uri and not uri.startswith("file://"):
        return uri
    folder = Path(uri.removeprefix("file://"))
    return str(next(p for p in (folder, *folder.parents) if os.path.lexists(p)))


def _refusal(uri: str, setting: str, nearest: str, number: int) -> SpecError:
    user = _name(os.geteuid())
    reason, advice = (
        (f"{nearest} is no folder", f"It is a file: set {setting} to a place below a folder.")
        if number == errno.ENOTDIR
        else (
            f"{user} may not write in {nearest}, {_owner(Path(nearest))}",
            f"Let {user} write there, or set {setting} to a place where {user} may.",
        )
    )
    return SpecError(
        f"the table {uri} can't be written: {reason} ({os.strerror(number)})", "setup", advice
    )


def _owner(folder: Path) -> str:
    return f"which belongs to {_name(folder.lstat().st_uid)}"


def _name(user: int) -> str:
    try:
        return f"user {getpwuid(user).pw_name}"
    except KeyError:
        # In a container a user may have no name.
        return f"user {user}"
