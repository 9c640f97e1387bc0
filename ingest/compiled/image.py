"""Machine code as it is kept, and as it is called: bytes that may lie anywhere, and what is known of the functions in them."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
import numpy as np

Function = Callable[..., Any]
"""As Python sees it. What machine code makes of its arguments, Python's types have no words for."""

CALLED = ("memcpy", "memmove", "memset", "strlen")
"""Functions of C that LLVM makes of loops."""


class DamagedCodeError(ValueError):
    """These bytes are not what was kept."""


class Parameter(msgspec.Struct, frozen=True):
    """A number of 64 bits, or a contiguous array of numbers: of which type, and of how many dimensions (0: a number)."""

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
        fits = isinstance(argument, np.ndarray) and argument.dtype == self.type and argument.ndim == self.dimensions
        if not fits or not argument.flags.c_contiguous or (self.written and not argument.flags.writeable):
            msg = f"compiled code wants a contiguous array of {self.type} with {self.dimensions} dimensions"
            raise TypeError(msg)
        yield argument.ctypes.data
        yield from argument.shape

    @property
    def types(self) -> list[Any]:
        """Those of the words, for C."""
        return [ctypes.c_void_p, *[ctypes.c_int64] * self.dimensions] if self.dimensions else [getattr(ctypes, f"c_{self.type}")]


class EntryPoint(msgspec.Struct, frozen=True):
    """A function: where it begins, what it takes, and whether it gives a number."""

    at: int
    parameters: tuple[Parameter, ...]
    gives: bool


class Image(msgspec.Struct, frozen=True):
    """Machine code. `calls`: where the addresses of functions of C are filled in; `addresses`: places, and what in it they lead to."""

    code: bytes
    entries: dict[str, EntryPoint]
    calls: dict[str, int]
    addresses: tuple[tuple[int, int], ...]

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
    """The functions, in memory of this process that is written once and then run, and stays until its end.

    Raises:
        OSError: the system lets nobody run what was written.
    """
    c = ctypes.CDLL(None, use_errno=True)
    memory = mmap.mmap(-1, len(image.code), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    held = (ctypes.c_char * len(image.code)).from_buffer(memory)  # who holds it keeps the memory where it is
    base = ctypes.addressof(held)
    memory.write(image.code)
    for name, place in image.calls.items():
        struct.pack_into("<Q", memory, place, ctypes.cast(getattr(c, name), ctypes.c_void_p).value)
    for place, target in image.addresses:
        struct.pack_into("<Q", memory, place, base + target)
    if c.mprotect(ctypes.c_void_p(base), ctypes.c_size_t(len(image.code)), mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return {name: _function(held, base + entry.at, entry) for name, entry in image.entries.items()}


def _function(held: object, address: int, entry: EntryPoint) -> Function:
    """As numba calls it: places for what it gives and for why it failed, then the words; 0 if it went well. Python's lock is let go of."""
    types = [kind for parameter in entry.parameters for kind in parameter.types]
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *types)(address)

    def function(*arguments: Any) -> int | None:
        _ = held
        words = [word for parameter, argument in zip(entry.parameters, arguments, strict=True) for word in parameter.words(argument)]
        given, why = ctypes.c_int64(), ctypes.c_void_p()
        if call(ctypes.byref(given), ctypes.byref(why), *words) != 0:
            msg = "compiled code went beyond the bounds of an array"
            raise IndexError(msg)
        return given.value if entry.gives else None

    return function
