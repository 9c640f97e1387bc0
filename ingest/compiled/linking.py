"""An object file of LLVM's -> one piece of machine code that may lie anywhere. Pure.

A linker can't be relied on where windrow is installed from wheels alone, and little of one is needed: compiled functions call each other
and read constants, both by distances that are known as soon as all sections stand behind each other, and call a handful of functions of C.
Whatever else an object file may ask for is refused. The format is ELF's, the numbers are those of System V's ABI for x86-64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from windrow.ingest.compiled.image import CALLED, EntryPoint, Image

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_ELF = b"\x7fELF\x02\x01"  # of 64 bits, little-endian
_RELOCATABLE, _X86_64 = 1, 62
_PROGBITS, _SYMTAB, _RELA = 1, 2, 4
_WRITE, _ALLOC = 1, 2
_UNDEFINED, _RESERVED = 0, 0xFF00
_ADDRESS, _DISTANCE, _CALL = 1, 2, 4  # R_X86_64_64, R_X86_64_PC32, R_X86_64_PLT32

_UNWINDING = ".eh_frame"
_FILLED_IN = ".data.rel.ro"
_JUMP = b"\xff\x25"  # to the address that stands so far behind it


class Unlinkable(Exception):  # noqa: N818  # a verdict, as `kafka.capi.Unusable`
    """The object file asks for something that isn't done here; says what."""


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    data: bytes
    link: int
    target: int
    align: int


@dataclass
class _Link:
    """What has been laid out: `places`, by section; and what is to be filled in where it is loaded."""

    code: bytearray = field(default_factory=bytearray)
    places: dict[int, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    stubs: dict[str, int] = field(default_factory=dict)
    addresses: list[tuple[int, int]] = field(default_factory=list)

    def put(self, data: bytes, align: int) -> int:
        """Where it stands now."""
        self.code += bytes(-len(self.code) % max(align, 1))
        place = len(self.code)
        self.code += data
        return place

    def stub(self, name: str) -> int:
        """Code that goes on to a function of C, whose address is filled in behind it."""
        if name not in CALLED:
            raise Unlinkable(f"it calls {name}")
        if name not in self.stubs:
            place = self.stubs[name] = self.put(_JUMP + struct.pack("<i", 2) + bytes(2 + 8), 8)
            self.calls[name] = place + 8
        return self.stubs[name]


def linked(object_file: bytes, entries: Mapping[str, tuple[str, EntryPoint]]) -> Image:
    """The machine code of an object file.

    Args:
        object_file: what LLVM has made: position-independent, of the small code model.
        entries: the functions that are called from outside: of each its symbol, and its entry but for the place.

    Raises:
        Unlinkable: it can't be done here.
    """
    sections = list(_sections(object_file))
    link = _Link()
    for number, section in enumerate(sections):
        if section.flags & _ALLOC and section.kind == _PROGBITS and section.name != _UNWINDING and section.data:
            if section.flags & _WRITE and not section.name.startswith(_FILLED_IN):
                raise Unlinkable(f"it writes to {section.name}")
            link.places[number] = link.put(section.data, section.align)
    (table,) = (section for section in sections if section.kind == _SYMTAB)
    symbols = list(_symbols(table.data, sections[table.link].data))
    for section in sections:
        if section.kind == _RELA and section.target in link.places:
            for at, what, addend in _RELOCATION.iter_unpack(section.data):
                _relocate(link, link.places[section.target] + at, what & 0xFFFF_FFFF, symbols[what >> 32], addend)
    known = {name: link.places[section] + value for name, section, value in symbols if section in link.places}
    placed = {name: EntryPoint(known[symbol], entry.parameters, gives=entry.gives) for name, (symbol, entry) in entries.items()}
    return Image(bytes(link.code), placed, link.calls, tuple(link.addresses))


def _relocate(link: _Link, place: int, kind: int, symbol: tuple[str, int, int], addend: int) -> None:
    name, section, value = symbol
    if section in link.places:
        target = link.places[section] + value
    elif section == _UNDEFINED and kind == _CALL:
        target = link.stub(name)
    else:
        raise Unlinkable(f"it refers to {name}")
    if kind == _ADDRESS:
        link.addresses.append((place, target + addend))
    elif kind in {_DISTANCE, _CALL}:
        link.code[place : place + 4] = struct.pack("<i", target + addend - place)
    else:
        raise Unlinkable(f"it has a relocation of kind {kind}")


def _sections(data: bytes) -> Iterator[_Section]:
    if not data.startswith(_ELF):
        raise Unlinkable("it is no ELF of 64 bits")
    _, kind, machine, _, _, _, at, _, _, _, _, size, count, names = _HEADER.unpack_from(data)
    if (kind, machine, size) != (_RELOCATABLE, _X86_64, _SECTION.size):
        raise Unlinkable(f"it is of machine {machine}")
    heads = [_SECTION.unpack_from(data, at + number * size) for number in range(count)]
    texts = data[heads[names][4] :]
    for name, kind_, flags, _, start, length, link, target, align, _ in heads:
        yield _Section(_text(texts, name), kind_, flags, data[start : start + length], link, target, align)


def _symbols(data: bytes, texts: bytes) -> Iterator[tuple[str, int, int]]:
    """Name, section and place in it."""
    for name, _, _, section, value, _ in _SYMBOL.iter_unpack(data):
        yield _text(texts, name), -1 if section >= _RESERVED else section, value


def _text(texts: bytes, at: int) -> str:
    return texts[at : texts.index(b"\0", at)].decode()
