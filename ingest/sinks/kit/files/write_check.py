"""Checks whether a table can be written at a place, and names the user who may not write."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from pwd import getpwuid
from tempfile import TemporaryFile

from windrow.ingest.errors import SpecError
from windrow.ingest.sinks.kit.files.filesystem import Place
from windrow.ingest.sinks.kit.files.put_if_absent import S3Puts, has_s3

_FULL = {errno.ENOSPC, errno.EDQUOT}


def refuse_unwritable(uri: str, setting: str = "sink.path") -> None:
    """Refuses a place where a table can't be written.

    For a local table it creates a file without a name in the nearest existing folder. A full
    disk passes, because it may have room later. In S3 it puts a file twice on condition and
    deletes it, if the extra `s3` is installed. Other object stores aren't checked.

    Args:
        uri: the place of the table, or of its warehouse.
        setting: the spec's setting that names the place.

    Raises:
        SpecError: the place can't be written. The error names the user, the folder and its
            owner, or the feature that a store lacks.
        UnreachableError: a store doesn't answer.
    """
    if uri.startswith("s3://") and has_s3():
        S3Puts(Place(uri)).try_place()
    if "://" in uri and not uri.startswith("file://"):
        return
    folder = Path(uri.removeprefix("file://"))
    nearest = next(p for p in (folder, *folder.parents) if os.path.lexists(p))
    try:
        with TemporaryFile(dir=nearest):
            return
    except OSError as why:
        if why.errno in _FULL:
            return
        who = _name(os.geteuid())
        reason, advice = (
            (f"{nearest} is no folder", f"It is a file: set {setting} to a place below a folder.")
            if why.errno == errno.ENOTDIR
            else (
                f"{who} may not write in {nearest}, {_owner(nearest)}",
                f"Let {who} write there, or set {setting} to a place where {who} may.",
            )
        )
        raise SpecError(
            f"the table {uri} can't be written: {reason} ({why.strerror})", "setup", advice
        ) from why


def _owner(folder: Path) -> str:
    return f"which belongs to {_name(folder.lstat().st_uid)}"


def _name(user: int) -> str:
    try:
        return f"user {getpwuid(user).pw_name}"
    except KeyError:
        # In a container a user may have no name.
        return f"user {user}"
