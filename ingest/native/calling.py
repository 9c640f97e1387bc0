"""Compiled functions as other modules call them.

They are loaded from where they are kept, without numba: another process makes them.
This folder's README.md says what that saves a worker.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from windrow.ingest.native.cache_folders import folders, sources
from windrow.ingest.native.machine_code import DamagedCodeError, Function, Image, loaded, unpacked
from windrow.ingest.waiting import waiting_for

_LOG = logging.getLogger("windrow.compiled")
_SOURCES: set[str] = set()
_MAKE = (
    "import sys; from windrow.ingest.native.compiling import image_of;"
    " sys.stdout.buffer.write(image_of(sys.argv[1]).packed())"
)
"""What a new Python runs to make a module's code."""


class Compiled:
    """Compiled functions of a module, as attributes.

    The first access loads all of them, or makes them first.

    They are kept in a folder that is named by their sources: so stale code is never
    loaded, and two processes that begin at once write the same, each in one step.
    Damaged files are made again. If no such folder can be written to, each process
    makes them for itself.
    """

    def __init__(self, module: str) -> None:
        """Names the functions' module.

        `module`: its name. It is imported only to make code, in another process.
        """
        self._module = module
        self._loading = threading.Lock()

    def __getattr__(self, name: str) -> Function:
        """The function of this name."""
        if name.startswith("_"):
            raise AttributeError(name)
        with self._loading:
            functions = self._functions
        if name not in functions:
            msg = f"{self._module} has no compiled function {name}"
            raise AttributeError(msg)
        self.__dict__[name] = functions[name]
        return functions[name]

    @cached_property
    def _functions(self) -> dict[str, Function]:
        return loaded(self._image())

    def _source(self) -> Path:
        """The module's file, without importing the module."""
        spec = find_spec(self._module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(self._module)
        source = Path(spec.origin)
        _SOURCES.update(map(str, sources(source)))
        return source

    def _image(self) -> Image:
        """The code that is kept; otherwise it is made, and kept."""
        source, file = self._source(), self._module.rpartition(".")[2] + ".code"
        made = None
        for folder in folders(source):
            try:
                return unpacked((folder / file).read_bytes())
            except DamagedCodeError:
                _LOG.warning("Compiled code in %s is damaged, and is made anew.", folder)
            except FileNotFoundError:
                pass
            except OSError as error:
                _LOG.warning("Compiled code in %s can't be read: %s", folder, type(error).__name__)
                continue
            made = made or self._made()
            try:
                _keep(folder / file, made.packed())
            except OSError as error:
                _LOG.warning("Compiled code can't be kept in %s: %s", folder, type(error).__name__)
            else:
                return made
        return made or self._made()

    def _made(self) -> Image:
        """Compiles in a process of its own: this one would hold numba and LLVM to its end."""
        with waiting_for(f"machine code of {self._module}, which is made once and kept"):
            done = subprocess.run(
                [sys.executable, "-P", "-c", _MAKE, self._module],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        try:
            return unpacked(done.stdout)
        except DamagedCodeError:
            msg = (
                f"numba could not compile {self._module}; the process that does it ended with"
                f" {done.returncode}:\n{done.stderr.decode(errors='replace')[-2000:]}"
            )
            raise RuntimeError(msg) from None


def loaded_sources() -> set[str]:
    """Source files of the compiled code in this process, imported by it or not."""
    return set(_SOURCES)


def _keep(file: Path, data: bytes) -> None:
    """Writes a file, which has its name only when it is whole."""
    handle, name = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
