"""Folders in which compiled code is kept.

A folder's name is a digest of everything that the code depends on. Only the user who made the
folder may write to it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path

_MAKERS = ("numba", "llvmlite")
_OF_PROCESSOR = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


def folders(source: Path) -> Iterator[Path]:
    """Yields the folders for the code compiled from a module, best first.

    1. A folder next to Python's own compiled modules, with the same readers. It is left out if it
       can't be written to, unless it has the code already (another user may have set up the
       environment).
    2. A folder in the user's cache. It is left out if it can't be written to, or if others could
       write to it.
    """
    name = fingerprint(source)
    next_to_source = Path(cache_from_source(str(source))).parent / "compiled" / name
    code = next_to_source / f"{source.stem}.code"
    # a folder that this user can't read has no code for this user, which is no error
    if os.path.isfile(code) or _writable(next_to_source, mode=0o755):  # noqa: PTH113
        yield next_to_source
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:
        return  # the user has no home
    ours = (home / "windrow", home / "windrow" / "compiled", home / "windrow" / "compiled" / name)
    if _writable(*ours) and all(map(_private, ours)) and not _is_world_writable(home):
        yield ours[-1]


def sources(source: Path) -> list[Path]:
    """Returns the files that become part of the code compiled from a module.

    They are the modules of its own folder, of the folder `shared` next to that folder, and of this
    folder.
    """
    places = Path(__file__).parent, source.parent, source.parent.parent / "shared"
    return list(dict.fromkeys(path for folder in places for path in sorted(folder.glob("*.py"))))


def fingerprint(source: Path) -> str:
    """Returns a digest that changes with everything that a module's compiled code depends on."""
    # with this setting numba uses no ability that another processor of this kind may lack
    generic = os.environ.get("NUMBA_CPU_NAME") == "generic"
    made_for = [platform.machine()] if generic else processor()
    digest = hashlib.sha256()
    settings = sorted(
        (name, value) for name, value in os.environ.items() if name.startswith("NUMBA_")
    )
    digest.update(
        repr(
            (settings, platform.python_version(), [version(name) for name in _MAKERS], made_for)
        ).encode()
    )
    for path in sources(source):
        digest.update(
            repr(
                (path.parent.name, path.name, hashlib.sha256(path.read_bytes()).hexdigest())
            ).encode()
        )
    return digest.hexdigest()[:32]


@cache
def processor() -> list[str]:
    """Returns the lines about the first processor's abilities in Linux's list, sorted.

    numba checks its own cache against the processor, too.
    """
    try:
        first = (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
        )
    except FileNotFoundError:
        return [platform.machine()]
    return sorted(
        line for line in first.splitlines() if line.partition(":")[0].strip() in _OF_PROCESSOR
    )


def _writable(*folders: Path, mode: int = 0o700) -> bool:
    """Returns whether the last folder can be written to.

    Missing folders are made in order. The mode of a new folder is by default for this user only.
    """
    try:
        for folder in folders:
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folders[-1]).close()
    except OSError:
        return False
    return True


def _private(folder: Path) -> bool:
    """Returns whether a folder belongs to this user alone.

    It may not be a link, and no other user may write to it.
    """
    about = folder.lstat()
    return (
        stat.S_ISDIR(about.st_mode)
        and about.st_uid == os.geteuid()
        and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _is_world_writable(folder: Path) -> bool:
    """Returns whether every user may replace the files in a folder."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
