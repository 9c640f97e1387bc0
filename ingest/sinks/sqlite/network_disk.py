"""Refuses a database on a network file system, where SQLite's locks don't work."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from windrow.ingest.errors import SpecError

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


def refuse_network(path: str, mounts: str = "/proc/mounts") -> None:
    """Refuses a file on a network file system, where file locks don't work.

    Only Linux lists its file systems; on other systems the file passes.

    Args:
        path: the file's path.
        mounts: the file with the list of mounted file systems.

    Raises:
        SpecError: the file is on such a file system; the error names it.
    """
    with suppress(OSError):
        mounted = [line.split()[1:3] for line in Path(mounts).read_text().splitlines()]
        above = [
            (len(folder), kind)
            for folder, kind in mounted
            if Path(path).resolve().is_relative_to(folder)
        ]
        kind = max(above, default=(0, ""))[1]
        if kind.startswith(_NETWORK):
            raise SpecError(
                f"{path} is on a network file system ({kind}), where file locks don't work",
                "setup",
                "Set sink.path to a file on a disk of this machine.",
            )
