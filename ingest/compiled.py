"""Functions that numba compiles to machine code: once for a machine and a version, then kept on disk for every process after that.

What loops over every byte of the messages is written in the part of Python that numba compiles. A module that has such functions compiles
them, or loads what is kept, when it is imported, which takes seconds or a tenth of one: so it is imported where work is done, never by the
command or by a spec's check.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import numba
import numba.extending
import numpy as np
from numba import types
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target

Function = Callable[..., Any]
"""As Python sees it. What numba makes of its arguments, Python's types have no words for."""

_LOG = logging.getLogger("windrow.compiled")
_FLAGS = {"nogil": True, "error_model": "numpy"}
"""Without Python's lock, and without a look for zero before each division. Bounds are looked at where NUMBA_BOUNDSCHECK=1 says so."""
_DECORATING = threading.Lock()
_njit: Any = numba.njit  # numba's types know neither these flags nor its settings
_settings: Any = numba.config
_pointer: Any = types.CPointer

intrinsic: Callable[[Function], Function] = numba.extending.intrinsic
"""Makes a function of LLVM's instructions; its first argument is numba's, not the caller's."""


def compiled(signature: object) -> Callable[[Function], Function]:
    """A function that Python calls, compiled for one signature: a text, or numba's types of its arguments.

    It is kept in a folder of its sources: the modules beside it, and those in a folder `shared` beside that, for what it calls is compiled
    into it, numba's version and settings, and the processor. So nothing stale is ever loaded, and two processes that begin at once write
    the same, each file in one step. The folder is beside Python's own compiled modules; where that can't be written, it is the user's, and
    nobody else's, for what lies there is run. What lies there damaged is made anew; if there is no such place, the function is compiled for
    this process alone.
    """

    def decorate(function: Function) -> Function:
        source = Path(function.__code__.co_filename)
        for folder in _folders(source):
            try:
                return _kept_or_made_anew(function, signature, folder)
            except NumbaError:
                raise  # the function is no such function
            except Exception as error:  # noqa: BLE001  # whatever there is to meet on a full disk, and where others clear up as well
                _LOG.warning("compiled code can't be kept in %s: %s", folder, type(error).__name__)
        return _njit(signature, **_FLAGS)(function)  # type: ignore[no-any-return]

    return decorate


def part(function: Function) -> Function:
    """A piece of compiled functions: it becomes part of each that calls it, and is never called from Python."""
    return _njit(**_FLAGS)(function)  # type: ignore[no-any-return]


def inlined(function: Function) -> Function:
    """A part that is written out wherever it is called: for what is called for every value, and has many arguments."""
    return _njit(forceinline=True, **_FLAGS)(function)  # type: ignore[no-any-return]


@intrinsic
def _memory(_: Any, array: Any) -> Any:
    """The address of a contiguous array's first element, as something that can be indexed."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return _pointer(array.dtype)(array), code


@part
def _itself(array: Any) -> Any:
    return array


CHECKED = bool(_settings.BOUNDSCHECK)
"""Whether all bounds are checked, which is for tests."""

memory = _itself if CHECKED else _memory
"""A contiguous array's memory, for functions that are called often: numba counts the users of an array at each call, by an atomic step.

It is indexed like the array, and lives no longer than it. Its bounds can't be checked: so where they shall be, it is the array.
"""


@intrinsic
def _loaded(_: Any, data: Any, at: Any) -> Any:
    def code(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(types.uint64).as_pointer()
        return builder.load(builder.bitcast(builder.gep(arguments[0], [arguments[1]]), word), align=1)

    return types.uint64(data, at), code


@part
def _put_together(data: Any, at: Any) -> Any:
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


word_at = _put_together if CHECKED else _loaded
"""Eight bytes of `memory`, from a place on, as one number whose lowest byte comes first; they must all be there."""


def _kept_or_made_anew(function: Function, signature: object, folder: Path) -> Function:
    """The function from the folder, which is cleared if something in it is damaged: else each process would compile it again, for ever."""
    try:
        return _kept(function, signature, folder)
    except (NumbaError, OSError):
        raise  # clearing would mend neither
    except Exception as error:  # noqa: BLE001  # whatever a file that was cut off makes of unpickling
        _LOG.warning("compiled code in %s is damaged, and made anew: %s", folder, type(error).__name__)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        return _kept(function, signature, folder)


def _kept(function: Function, signature: object, folder: Path) -> Function:
    """The function, from the folder or compiled and put there. numba has the folder from a setting for all, so one asks at a time."""
    with _DECORATING:
        before, _settings.CACHE_DIR = _settings.CACHE_DIR, str(folder)
        try:
            return _njit(signature, cache=True, **_FLAGS)(function)  # type: ignore[no-any-return]
        finally:
            _settings.CACHE_DIR = before


def _folders(source: Path) -> Iterator[Path]:
    """Where code compiled from a module may be kept, best first."""
    name = _fingerprint(source)
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


def _fingerprint(source: Path) -> str:
    """Changes with whatever the compiled code depends on."""
    digest = hashlib.sha256()
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("NUMBA_"))
    machine = (platform.python_version(), numba.__version__, cpu_target.target_context.codegen().magic_tuple())
    digest.update(repr((settings, machine)).encode())
    for path in (Path(__file__), *sorted(source.parent.glob("*.py")), *sorted(source.parent.parent.glob("shared/*.py"))):
        digest.update(repr((path.parent.name, path.name, hashlib.sha256(path.read_bytes()).hexdigest())).encode())
    return digest.hexdigest()[:32]


def _writable(*folders: Path) -> bool:
    """Whether the last one can be written to. Those that aren't there are made, in their order, for this user alone."""
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
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _anybodys(folder: Path) -> bool:
    """Whether anybody may put something else in the place of what lies in a folder."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
