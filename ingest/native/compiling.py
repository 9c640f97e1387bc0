"""Compiles functions to machine code.

numba compiles the functions, and LLVM writes an object file for each module.

Loops over every byte of the messages are written in the part of Python that numba compiles.
A module with such functions imports this module, and with it numba. So both are imported only
to make code. Other modules call the functions through `calling.Compiled`.

Only this module uses names of numba that aren't public: all of `numba.core` and `numba.np`, and
`_getvalue`. They exist in numba 0.68, and any release may change them.
`tests/shape/test_internals.py` fails if a name is gone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import numba
import numba.extending
import numpy as np
from numba import boolean, int32, int64, types, uint8, uint64, void
from numba.core import cgutils, sigutils
from numba.core.registry import cpu_target
from numba.np.arrayobj import populate_array

from windrow.ingest.native.machine_code import EntryPoint, Function, Image, Parameter

__all__ = [
    "CHECKED",
    "OCTETS",
    "below",
    "boolean",
    "cgutils",
    "compiled",
    "image_of",
    "inlined",
    "int32",
    "int64",
    "intrinsic",
    "leading_zeros",
    "memory",
    "part",
    "put_word",
    "trailing_zeros",
    "types",
    "uint8",
    "uint64",
    "void",
    "word_at",
]
"""All names that modules with compiled functions need. Only this module imports numba."""

_FLAGS = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
"""Options of numba.

Python's lock is released. Divisions don't check for zero. numba's memory management is left out.
So are the wrappers for calls from Python and from C, which take a quarter of the compile time.
Bounds are checked only with NUMBA_BOUNDSCHECK=1.
"""
_njit: Any = numba.njit  # numba's types don't know these flags
_settings: Any = numba.config
_pointer: Any = types.CPointer
_utils: Any = cgutils
_signatures: Any = sigutils
_populate: Any = populate_array

intrinsic: Callable[[Function], Function] = numba.extending.intrinsic
"""Makes a function from LLVM's instructions.

The first argument of such a function comes from numba, not from the caller.
"""


@dataclass(frozen=True)
class Compilable:
    """A function that Python calls.

    Attributes:
        function: the function.
        signature: a text, or numba's types of the arguments.
    """

    function: Function
    signature: object


def compiled(signature: object) -> Callable[[Function], Compilable]:
    """Returns a decorator that marks a function for calls from Python.

    Args:
        signature: a text, or numba's types of the arguments.
    """
    return lambda function: Compilable(function, signature)


def part(function: Function) -> Function:
    """Makes a function a part of compiled functions.

    It becomes part of each function that calls it, and is never called from Python.
    """
    return _njit(**_FLAGS)(function)  # type: ignore[no-any-return]


def inlined(function: Function) -> Function:
    """Makes a function a part that is inlined at each call.

    This suits parts that are called for every value and have many arguments.
    """
    return _njit(forceinline=True, **_FLAGS)(function)  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------------

OCTETS = types.Array(types.uint8, 1, "C", readonly=True)
"""Type of bytes that are only read, such as messages in Arrow's memory."""

CHECKED = bool(_settings.BOUNDSCHECK)
"""True if all bounds are checked, as in tests."""


@intrinsic
def _memory(_: Any, array: Any) -> Any:
    """Returns the address of a contiguous array's first element, which can be indexed."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return _pointer(array.dtype)(array), code


@part
def _itself(array: Any) -> Any:
    return array


memory = _itself if CHECKED else _memory
"""The memory of a contiguous array, for functions that are called often.

numba passes an array as many words at each call, but its memory as one word. The memory is
indexed like the array, and is valid only as long as the array. Its bounds can't be checked, so
with CHECKED it is the array itself.
"""


@intrinsic
def _load_word(_: Any, data: Any, index: Any) -> Any:
    def code(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(types.uint64).as_pointer()
        return builder.load(
            builder.bitcast(builder.gep(arguments[0], [arguments[1]]), word), align=1
        )

    return types.uint64(data, index), code


@part
def _assemble_word(data: Any, index: Any) -> Any:
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(data[index + i]) << np.uint64(8 * i)
    return word


word_at = _assemble_word if CHECKED else _load_word
"""Eight bytes of `memory` from an index on, as one number, the lowest byte first.

The caller makes sure that all eight exist.
"""


@intrinsic
def trailing_zeros(_: Any, value: Any) -> Any:
    """Counts the bits below the lowest set bit of a number that isn't 0."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], _utils.true_bit)

    return uint64(uint64), code


@intrinsic
def leading_zeros(_: Any, value: Any) -> Any:
    """Counts the bits above the highest set bit of a number that isn't 0."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], _utils.true_bit)

    return uint64(uint64), code


@intrinsic
def _store_word(_: Any, data: Any, index: Any, value: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = context.get_value_type(types.uint64).as_pointer()
        builder.store(
            arguments[2], builder.bitcast(builder.gep(arguments[0], [arguments[1]]), word), align=1
        )
        return context.get_dummy_value()

    return types.none(data, int64, uint64), code


@part
def _split_word(data: Any, index: Any, word: Any) -> None:
    for i in range(8):
        data[index + i] = word >> np.uint64(8 * i) & np.uint64(255)


put_word = _split_word if CHECKED else _store_word
"""Writes eight bytes at an index.

The caller makes sure that the memory has room for all eight.
"""


@inlined
def below(n: Any) -> Any:
    """Returns the mask of the first n bytes of a number from `word_at`; n is 1 to 8."""
    return ~np.uint64(0) >> np.uint64(64 - 8 * n)


# --------------------------------------------------------------------------------------------------


def image_of(module: str) -> Image:
    """Compiles a module's functions to machine code for this processor."""
    triple, processor, features = cpu_target.target_context.codegen().magic_tuple()
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(
        cpu=processor, features=features, opt=3, reloc="pic", codemodel="small"
    )
    linked_module, entries = llvm.parse_assembly(""), {}
    linked_module.triple, linked_module.data_layout = triple, str(machine.target_data)
    for name, compilable in _compilables(importlib.import_module(module)).items():
        library, entries[name] = _compile(compilable)
        linked_module.link_in(llvm.parse_assembly(library.get_llvm_str()))
    exported_symbols = {entry.symbol for entry in entries.values()}
    for value in (*linked_module.functions, *linked_module.global_variables):
        if not value.is_declaration and value.name not in exported_symbols:
            value.linkage = "internal"
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(linked_module, builder)
    return Image(machine.emit_object(linked_module), entries)


def _compilables(module: ModuleType) -> dict[str, Compilable]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Compilable)}


@intrinsic
def _array(_: Any, data: Any, shape: Any) -> Any:
    """Returns the contiguous array at an address.

    numba's own `carray` needs its memory management, which is left out.
    """
    kind = types.Array(data.dtype, len(shape), "C")

    def code(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        array = context.make_array(kind)(context, builder)
        lengths = _utils.unpack_tuple(builder, arguments[1])
        size = context.get_constant(
            types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype))
        )
        strides = [size]
        for length in reversed(lengths[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        _populate(
            array, data=arguments[0], shape=lengths, strides=strides, itemsize=size, meminfo=None
        )
        return array._getvalue()  # numba has no public way  # noqa: SLF001

    return kind(data, shape), code


def _compile(compilable: Compilable) -> tuple[Any, EntryPoint]:
    """Compiles a function that only takes words, and calls the given function.

    Returns numba's library and the function's entry in it.
    """
    kinds, _ = _signatures.normalize_signature(compilable.signature)
    names, words, values, parameters = [], [], [], []
    for i, kind in enumerate(kinds):
        names.append(f"a{i}")
        if isinstance(kind, types.Array):
            lengths = [f"a{i}_{axis}" for axis in range(kind.ndim)]
            names += lengths
            words += [_pointer(kind.dtype), *[types.int64] * kind.ndim]
            values.append(f"array(a{i}, ({', '.join(lengths)},))")
            parameters.append(Parameter(str(kind.dtype), kind.ndim, written=kind.mutable))  # type: ignore[arg-type]
        elif kind == types.boolean:
            words.append(types.int64)
            values.append(f"a{i} != 0")
            parameters.append(Parameter("int64"))
        else:
            words.append(kind)
            values.append(f"a{i}")
            parameters.append(Parameter(str(kind)))  # type: ignore[arg-type]
    scope = {"function": part(compilable.function), "array": _array}
    # the text only consists of the names in the loop above
    entry = f"def entry({', '.join(names)}):\n    return function({', '.join(values)})"
    exec(entry, scope)  # noqa: S102
    compiled_entry = _njit(tuple(words), **_FLAGS)(scope["entry"]).overloads[tuple(words)]
    return_type = compiled_entry.signature.return_type
    if return_type not in {types.int64, types.none}:
        msg = f"a compiled function returns int64 or nothing, not {return_type}"
        raise TypeError(msg)
    return compiled_entry.library, EntryPoint(
        compiled_entry.fndesc.llvm_func_name, tuple(parameters), gives=return_type == types.int64
    )
