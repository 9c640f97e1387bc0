"""Use of addresses in compiled code: calls of C functions, reads and writes of words.

These functions are parts of other modules' compiled functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from windrow.ingest.native.compiling import cgutils, intrinsic, part, types

_utils: Any = cgutils  # has no types


def _call_to(result: types.Type) -> Callable[..., Any]:
    def call(_typing: Any, address: Any, arguments: Any) -> Any:
        def build(context: Any, builder: Any, _signature: Any, operands: Any) -> Any:
            words = _utils.unpack_tuple(builder, operands[1])
            function = ir.FunctionType(
                context.get_value_type(result), [word.type for word in words]
            )
            return builder.call(builder.inttoptr(operands[0], function.as_pointer()), words)

        return result(address, arguments), build

    return call


call_at = intrinsic(_call_to(types.int64))
"""Calls the C function at an address, with a tuple of words.

It can also call a function without a result; the returned number is then meaningless.
"""

call32_at = intrinsic(_call_to(types.int32))
"""Calls a C function that returns a 32-bit int."""


def _load_from(kind: types.Type) -> Callable[..., Any]:
    def load(_typing: Any, address: Any) -> Any:
        def build(context: Any, builder: Any, _signature: Any, operands: Any) -> Any:
            return builder.load(
                builder.inttoptr(operands[0], context.get_value_type(kind).as_pointer()), align=1
            )

        return kind(address), build

    return load


def _put(kind: types.Type) -> Callable[..., Any]:
    def store(_typing: Any, address: Any, _value: Any) -> Any:
        def build(context: Any, builder: Any, _signature: Any, operands: Any) -> Any:
            builder.store(
                operands[1],
                builder.inttoptr(operands[0], context.get_value_type(kind).as_pointer()),
                align=1,
            )
            return context.get_dummy_value()

        return types.none(address, kind), build

    return store


int64_at = intrinsic(_load_from(types.int64))
int32_at = intrinsic(_load_from(types.int32))
byte_at = intrinsic(_load_from(types.uint8))

put_int64_at = intrinsic(_put(types.int64))
put_byte_at = intrinsic(_put(types.uint8))


@part
def copy_bytes(source: Any, length: Any, target: Any) -> None:
    """Copies bytes from one address to another, eight at a time.

    It never reads or writes a byte beyond the length.
    """
    while length >= 8:
        put_int64_at(target, int64_at(source))
        source, target, length = source + 8, target + 8, length - 8
    while length > 0:
        put_byte_at(target, byte_at(source))
        source, target, length = source + 1, target + 1, length - 1
