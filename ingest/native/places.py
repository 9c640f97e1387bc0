"""Where compiled code is kept: in a folder named by all that it depends on, which
nobody but who runs it may write to.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path

_MAKERS = ("numba", "llvmlite")
_OF_PROCESSOR = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


def folders(source: Path) -> Iterator[Path]:
    """Where code compiled from a module may be kept, best first: beside Python's own
    compiled modules, else in the user's cache.
    """
    name = fingerprint(source)
    beside = Path(cache_from_source(str(source))).parent / "compiled" / name
    if not sys.dont_write_bytecode and _writable(beside):
        yield beside
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:
        return  # there is no home
    ours = (home / "windrow", home / "windrow" / "compiled", home / "windrow" / "compiled" / name)
    if _writable(*ours) and all(map(_private, ours)) and not _anybodys(home):
        yield ours[-1]


def sources(source: Path) -> list[Path]:
    """All that becomes part of code compiled from a module: what is beside it, in
    `shared` beside its folder, and what compiles.
    """
    places = Path(__file__).parent, source.parent, source.parent.parent / "shared"
    return list(dict.fromkeys(path for folder in places for path in sorted(folder.glob("*.py"))))


def fingerprint(source: Path) -> str:
    """Changes with whatever the code compiled from a module depends on."""
    digest = hashlib.sha256()
    settings = sorted(
        (name, value) for name, value in os.environ.items() if name.startswith("NUMBA_")
    )
    digest.update(
        repr(
            (settings, platform.python_version(), [version(name) for name in _MAKERS], _processor())
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
def _processor() -> list[str]:
    """What Linux says of the first processor that tells what it can run.

    What numba keeps itself, it holds against its processor, too.
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


def _writable(*folders: Path) -> bool:
    """Whether the last one can be written to.

    Those that aren't there are made, in their order, for this user alone.
    """
    try:
        for folder in folders:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folders[-1]).close()
    except OSError:
        return False
    return True


def _private(folder: Path) -> bool:
    """Whether it is this user's own folder, not a link to one, and nobody else may write to it."""
    about = folder.lstat()
    return (
        stat.S_ISDIR(about.st_mode)
        and about.st_uid == os.geteuid()
        and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _anybodys(folder: Path) -> bool:
    """Whether anybody may put something else in the place of what lies in a folder."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
