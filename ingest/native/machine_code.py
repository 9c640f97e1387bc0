"""Machine code as it is kept on disk and called.

It is an object file, and a description of how Python calls the functions in it.
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
"""A function for callers in Python.

Python's types can't describe how its arguments become words of machine code.
"""

_LOADED: list[object] = []
"""References to the code that LLVM has loaded: LLVM unloads code without references."""


_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (r-(?:.*\n(?![0-9a-f]+-))*)", re.MULTILINE)
"""Read-only memory in Linux's smaps: begin, end, and the other lines."""


class DamagedCodeError(ValueError):
    """The bytes differ from the bytes that were kept."""


class Parameter(msgspec.Struct, frozen=True):
    """A parameter: a number, or a contiguous array of numbers.

    Attributes:
        type: the type of the number, or of the array's numbers.
        dimensions: the number of the array's dimensions; 0 for a number.
        written: True if the function writes to the array.
    """

    type: Literal["int64", "int32", "uint64", "uint8"]
    dimensions: int = 0
    written: bool = False

    def words(self, argument: Any) -> Iterator[int]:
        """Yields the words that the machine code gets for an argument.

        They are the number itself, or an array's address and lengths.

        Raises:
            TypeError: the array differs from the array that the code was made for.
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
                f"compiled code needs a contiguous array of {self.type} with {self.dimensions}"
                " dimensions"
            )
            raise TypeError(msg)
        yield argument.ctypes.data
        yield from argument.shape

    @property
    def types(self) -> list[Any]:
        """The C types of the words."""
        return (
            [ctypes.c_void_p, *[ctypes.c_int64] * self.dimensions]
            if self.dimensions
            else [getattr(ctypes, f"c_{self.type}")]
        )


class EntryPoint(msgspec.Struct, frozen=True):
    """A function in the object file.

    Attributes:
        symbol: the function's name in the file.
        parameters: the function's parameters.
        gives: True if the function returns a number.
    """

    symbol: str
    parameters: tuple[Parameter, ...]
    gives: bool


class Image(msgspec.Struct, frozen=True):
    """Machine code with its entries.

    Attributes:
        code: LLVM's object file.
        entries: the functions that are called from outside, by name.
    """

    code: bytes
    entries: dict[str, EntryPoint]

    def pack(self) -> bytes:
        """Returns the bytes to keep, with a digest that detects a file that was cut off."""
        data = msgspec.msgpack.encode(self)
        return hashlib.sha256(data).digest() + data


def unpack_image(data: bytes) -> Image:
    """Reads an image from the bytes of `pack`.

    Raises:
        DamagedCodeError: the digest doesn't match.
    """
    size = hashlib.sha256().digest_size
    if hashlib.sha256(data[size:]).digest() != data[:size]:
        msg = "the digest doesn't match"
        raise DamagedCodeError(msg)
    return msgspec.msgpack.decode(data[size:], type=Image)


def load_image(image: Image) -> dict[str, Function]:
    """Loads an object file with LLVM, until the process ends; returns its functions.

    Raises:
        RuntimeError: the functions call a C function that this process doesn't have.
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
    """Makes a Python function from the code at an address.

    The code is called by numba's convention: the arguments are places for the result and for an
    error, then the words, and it returns 0 on success. Python's lock is released during the call.
    """
    types = [kind for parameter in entry.parameters for kind in parameter.types]
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *types)(address)

    def function(*arguments: Any) -> int | None:
        words = [
            word
            for parameter, argument in zip(entry.parameters, arguments, strict=True)
            for word in parameter.words(argument)
        ]
        returned, failure = ctypes.c_int64(), ctypes.c_void_p()
        if call(ctypes.byref(returned), ctypes.byref(failure), *words) != 0:
            msg = "compiled code went beyond the bounds of an array"
            raise IndexError(msg)
        return returned.value if entry.gives else None

    return function


def _forget_pages_of(library: str) -> None:
    """Removes a library's pages from this process's memory.

    The pages are read again when they are needed. LLVM runs once through forty megabytes of
    them, which a worker would otherwise hold until it ends.
    """
    try:
        maps = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # another system than Linux
    for begin, end, mapping in _MAPPING.findall(maps):
        # Pages that were never written to, and aren't in swap, are in the file. So no data is lost.
        if library in mapping and all(
            re.search(rf"^{kind}: +0 kB$", mapping, re.MULTILINE)
            for kind in ("Private_Dirty", "Swap")
        ):
            address, size = int(begin, 16), int(end, 16) - int(begin, 16)
            ctypes.CDLL(None).madvise(
                ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_DONTNEED
            )
