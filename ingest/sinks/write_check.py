"""Checks whether a table can be written at a place, and says who may not write where."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from pwd import getpwuid
from tempfile import TemporaryFile

from windrow.ingest.errors import SpecError
from windrow.ingest.sinks.put_if_absent import S3Puts, has_s3

_FULL = {errno.ENOSPC, errno.EDQUOT}
_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "afs",
    "ceph",
    "fuse.ceph",
    "fuse.gluster",
    "fuse.sshfs",
    "lustre",
)


def refuse_unwritable(uri: str, setting: str = "sink.path") -> None:
    """Try to write in the nearest existing folder of a local table, by a file without a name.

    A full disk passes: it may have room later. In S3 a file is put twice on condition and deleted,
    if the extra `s3` is installed; other object stores aren't asked.

    Args:
        uri: the table's place, or that of its warehouse.
        setting: the spec's setting that names the place.

    Raises:
        SpecError: says which user may not write in which folder, and whose it is; or what a store
            lacks.
        UnreachableError: a store doesn't answer.
    """
    if uri.startswith("s3://") and has_s3():
        S3Puts(uri).try_place()
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
        reason = (
            f"{nearest} is no folder"
            if why.errno == errno.ENOTDIR
            else f"{who} may not write in {nearest}, {_owner(nearest)}"
        )
        what = f"the table {uri} can't be written: {reason} ({why.strerror})"
        raise SpecError(
            what, "setup", f"Let {who} write there, or set {setting} to a place where {who} may."
        ) from why


def refuse_network(path: str, mounts: str = "/proc/mounts") -> None:
    """Refuse a file on a network file system, where locks don't hold, as far as Linux tells.

    Raises:
        SpecError: names the file system.
    """
    with suppress(OSError):
        told = [line.split()[1:3] for line in Path(mounts).read_text().splitlines()]
        above = [
            (len(folder), kind)
            for folder, kind in told
            if Path(path).resolve().is_relative_to(folder)
        ]
        kind = max(above, default=(0, ""))[1]
        if kind.startswith(_NETWORK):
            what = f"{path} lies on a network file system ({kind}), where locks of files don't hold"
            raise SpecError(what, "setup", "Set sink.path to a file on a disk of this machine.")


def _owner(folder: Path) -> str:
    return f"which belongs to {_name(folder.lstat().st_uid)}"


def _name(user: int) -> str:
    try:
        return f"user {getpwuid(user).pw_name}"
    except KeyError:  # a container's user may have no name
        return f"user {user}"
