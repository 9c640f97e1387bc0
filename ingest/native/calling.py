"""Compiled functions, ready to be called by other modules.

They are loaded from disk without numba, because another process makes them. This folder's
README.md says what that saves a worker.
"""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from windrow.ingest.native.cache_folders import folders, sources
from windrow.ingest.native.machine_code import (
    DamagedCodeError,
    Function,
    Image,
    load_image,
    unpack_image,
)
from windrow.ingest.waiting import AGAIN_SECONDS, SECONDS, log_waiting, waiting_for

_LOG = logging.getLogger("windrow.compiled")
_SOURCES: set[str] = set()
_MAKE = (
    "import sys; from windrow.ingest.native.compiling import image_of;"
    " sys.stdout.buffer.write(image_of(sys.argv[1]).pack())"
)
"""Script with which a new Python makes a module's code."""

_KEEP = (
    "import sys; from windrow.ingest.native.calling import Compiled; Compiled(sys.argv[1]).keep()"
)
"""Script with which a new Python makes a module's code and keeps it on disk."""


class Compiled:
    """Compiled functions of a module, as attributes.

    The first access loads all of them, or makes them first.

    They are kept in a folder that is named by a digest of their sources, so old code is never
    loaded. If several processes begin at the same time, one of them makes the code, and the
    others wait for it. Damaged files are made again. If no such folder can be written to, each
    process makes the code for itself.

    Args:
        module: the name of the module. It is imported only to make code, in another process.
    """

    def __init__(self, module: str) -> None:
        """Loads nothing yet."""
        self.module = module
        self._loading = threading.Lock()
        self._label = f"machine code of {module}, which is made once and kept"
        self._maker: subprocess.Popen[bytes] | None = None
        self._reported_at = 0.0

    def __getattr__(self, name: str) -> Function:
        """Returns the function with this name."""
        if name.startswith("_"):
            raise AttributeError(name)
        with self._loading:
            functions = self._functions
        if name not in functions:
            msg = f"{self.module} has no compiled function {name}"
            raise AttributeError(msg)
        self.__dict__[name] = functions[name]
        return functions[name]

    def ready(self) -> bool:
        """Returns whether the functions can be called without a wait.

        If they have to be made, another process begins to make them, and may outlive this process.
        The caller does without them in the meantime. If no folder can keep them, another process
        can't make them for this one. Then the first call makes them.
        """
        if "_functions" in vars(self):
            return True
        if self._maker is None and any(self._files()) and not self.is_kept():
            nothing = subprocess.DEVNULL
            self._maker = subprocess.Popen(
                self._command(_KEEP),
                env=_environment(),
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                start_new_session=True,  # a signal that ends this process doesn't end it
            )
            self._reported_at = time.monotonic() + SECONDS - AGAIN_SECONDS
        if self._maker is None or self._maker.poll() is not None:
            return True
        if time.monotonic() - self._reported_at >= AGAIN_SECONDS:
            self._reported_at = time.monotonic()
            log_waiting(f"{self._label}; messages are decoded one by one meanwhile")
        return False

    def is_kept(self) -> bool:
        """Returns whether the functions are on disk."""
        return any(file.is_file() for file in self._files())

    def keep(self) -> None:
        """Makes the functions, if they aren't kept yet, without loading them."""
        self._image()

    @cached_property
    def _functions(self) -> dict[str, Function]:
        return load_image(self._image())

    def _source(self) -> Path:
        """Returns the module's file, without importing the module."""
        spec = find_spec(self.module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(self.module)
        source = Path(spec.origin)
        _SOURCES.update(map(str, sources(source)))
        return source

    def _files(self) -> Iterator[Path]:
        """Yields the files in which the code may be kept, best first."""
        name = self.module.rpartition(".")[2] + ".code"
        return (folder / name for folder in folders(self._source()))

    def _image(self) -> Image:
        """Returns the kept code; if there is none, makes and keeps it."""
        image = None
        with waiting_for(self._label):
            for file in self._files():
                # Not under the lock, which a stopped process may hold for long. A file has its
                # name only when it is complete.
                with suppress(OSError, DamagedCodeError):
                    return unpack_image(file.read_bytes())
                with _lock_folder(file.parent):
                    try:
                        return unpack_image(file.read_bytes())
                    except DamagedCodeError:
                        _LOG.warning("Compiled code in %s is damaged, and is made anew.", file)
                    except FileNotFoundError:
                        pass
                    except OSError as error:
                        _LOG.warning(
                            "Compiled code in %s can't be read: %s", file, type(error).__name__
                        )
                        continue
                    image = image or self._make_image()
                    try:
                        _keep(file, image.pack())
                    except OSError as error:
                        _LOG.warning(
                            "Compiled code can't be kept in %s: %s", file, type(error).__name__
                        )
                    else:
                        return image
            return image or self._make_image()

    def _make_image(self) -> Image:
        """Compiles in its own process: this process would hold numba and LLVM until it ends."""
        process = subprocess.run(
            self._command(_MAKE),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        try:
            return unpack_image(process.stdout)
        except DamagedCodeError:
            msg = (
                f"numba could not compile {self.module}; the process that does it ended with"
                f" {process.returncode}:\n{process.stderr.decode(errors='replace')[-2000:]}"
            )
            raise RuntimeError(msg) from None

    def _command(self, script: str) -> list[str]:
        return [sys.executable, "-P", "-c", script, self.module]


def _environment() -> dict[str, str]:
    """Returns the environment of a new Python that can import the same modules."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def loaded_sources() -> set[str]:
    """Returns the source files of the compiled code in this process, imported or not."""
    return set(_SOURCES)


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lets one process after the other into the block, if the folder's file system has locks."""
    lock_file = None
    try:
        with suppress(OSError):
            lock_file = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield
    finally:
        if lock_file is not None:
            os.close(lock_file)


def _keep(file: Path, data: bytes) -> None:
    """Writes a file, which gets its name only when it is complete."""
    handle, name = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        Path(name).chmod(0o644)  # the folder decides which users may read it
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
