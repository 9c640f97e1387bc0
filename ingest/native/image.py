"""Machine code as it is kept and called: an object file, and how Python calls the
functions in it.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

Function = Callable[..., Any]
"""As Python sees it. What machine code makes of its arguments, Python's types have no words for."""

_LOADED: list[object] = []
"""Keeps what LLVM has loaded: it unloads what nobody refers to."""


_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (r-(?:.*\n(?![0-9a-f]+-))*)", re.MULTILINE)
"""Memory in Linux's smaps that nobody can write to: where it begins and ends, and the rest."""


class DamagedCodeError(ValueError):
    """These bytes are not what was kept."""


class Parameter(msgspec.Struct, frozen=True):
    """A number of 64 bits, or a contiguous array of numbers: of which type, and of how
    many dimensions (0: a number).
    """

    type: Literal["int64", "int32", "uint64", "uint8"]
    dimensions: int = 0
    written: bool = False

    def words(self, argument: Any) -> Iterator[int]:
        """What the machine code is given for an argument: the number, or address and lengths.

        Raises:
            TypeError: it is another array than the code was made for.
        """
        if not self.dimensions:
            yield int(argument)
            return
        fits = (
            isinstance(argument, np.ndarray)
            and argument.dtype == self.type
            and argument.ndim == self.dimensions
        )
        if (
            not fits
            or not argument.flags.c_contiguous
            or (self.written and not argument.flags.writeable)
        ):
            msg = (
                f"compiled code wants a contiguous array of {self.type} with {self.dimensions}"
                " dimensions"
            )
            raise TypeError(msg)
        yield argument.ctypes.data
        yield from argument.shape

    @property
    def types(self) -> list[Any]:
        """Those of the words, for C."""
        return (
            [ctypes.c_void_p, *[ctypes.c_int64] * self.dimensions]
            if self.dimensions
            else [getattr(ctypes, f"c_{self.type}")]
        )


class EntryPoint(msgspec.Struct, frozen=True):
    """A function: its name in the object file, what it takes, and whether it gives a number."""

    symbol: str
    parameters: tuple[Parameter, ...]
    gives: bool


class Image(msgspec.Struct, frozen=True):
    """Machine code: an object file of LLVM's, and what in it is called from outside."""

    code: bytes
    entries: dict[str, EntryPoint]

    def packed(self) -> bytes:
        """As it is kept: with a digest, by which a file that was cut off is known."""
        data = msgspec.msgpack.encode(self)
        return hashlib.sha256(data).digest() + data


def unpacked(data: bytes) -> Image:
    """What was `packed`.

    Raises:
        DamagedCodeError: it isn't.
    """
    size = hashlib.sha256().digest_size
    if hashlib.sha256(data[size:]).digest() != data[:size]:
        msg = "the digest is another"
        raise DamagedCodeError(msg)
    return msgspec.msgpack.decode(data[size:], type=Image)


def loaded(image: Image) -> dict[str, Function]:
    """Loads an object file with LLVM, for as long as the process lives; its functions.

    Raises:
        RuntimeError: they call a function of C that this process doesn't have.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    builder = llvm.JITLibraryBuilder().add_object_img(image.code).add_current_process()
    for entry in image.entries.values():
        builder.export_symbol(entry.symbol)
    jit = llvm.create_lljit_compiler()
    library = builder.link(jit, "windrow")
    _LOADED.append((jit, library))
    _forget_pages_of("libllvmlite")
    return {name: _function(library[entry.symbol], entry) for name, entry in image.entries.items()}


def _function(address: int, entry: EntryPoint) -> Function:
    """As numba calls it: places for what it gives and for why it failed, then the
    words; 0 if it went well.

    Python's lock is let go of.
    """
    types = [kind for parameter in entry.parameters for kind in parameter.types]
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *types)(address)

    def function(*arguments: Any) -> int | None:
        words = [
            word
            for parameter, argument in zip(entry.parameters, arguments, strict=True)
            for word in parameter.words(argument)
        ]
        given, why = ctypes.c_int64(), ctypes.c_void_p()
        if call(ctypes.byref(given), ctypes.byref(why), *words) != 0:
            msg = "compiled code went beyond the bounds of an array"
            raise IndexError(msg)
        return given.value if entry.gives else None

    return function


def _forget_pages_of(library: str) -> None:
    """Takes a library's pages out of this process's memory; they are read again where needed.

    LLVM runs once through forty megabytes of them, which a worker would hold to its end.
    """
    try:
        maps = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # another system than Linux
    for begin, end, about in _MAPPING.findall(maps):
        # what was never written to, and isn't in swap, is the file's: nothing is lost
        if library in about and all(
            re.search(rf"^{kind}: +0 kB$", about, re.MULTILINE)
            for kind in ("Private_Dirty", "Swap")
        ):
            place, size = int(begin, 16), int(end, 16) - int(begin, 16)
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(place), ctypes.c_size_t(size), mmap.MADV_DONTNEED
            )
