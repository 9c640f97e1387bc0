"""Requests with places for keys: `{column}` in an address, or as a string of a JSON body."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

import msgspec

LONGEST_TARGET = 8192
"""Length limit of a path with its query, in characters. Servers refuse longer ones."""

PLACE = re.compile(r"\{([^{}]+)\}")


class UnaskableError(ValueError):
    """A key that can't be put into the address. The text doesn't have its value."""


def target_of(template: str, key: Mapping[str, Any]) -> bytes:
    """Returns path and query for a key, percent-encoded.

    Raises:
        UnaskableError: the key is empty, would lead to another path, or is too long.
    """
    path, mark, query = template.partition("?")
    if "" in map(key.get, PLACE.findall(path)):
        raise UnaskableError("it is empty")
    path, query = (
        PLACE.sub(lambda match: quote(_text(key[match[1]]), safe=""), part)
        for part in (path, query)
    )
    # servers and proxies resolve the segments . and .., also percent-encoded ones
    if {".", ".."} & set(re.split(r"[/\\]", unquote(path))):
        raise UnaskableError("it leads to another path")
    if len(path + query) > LONGEST_TARGET:
        raise UnaskableError(f"its address is longer than {LONGEST_TARGET:,} characters")
    return (path + mark + query).encode("ascii")


def places(body: object, *, in_list: bool = False) -> Iterator[tuple[str, bool]]:
    """Yields the column of each place in a body, and whether it is in a list of one item."""
    if isinstance(body, str) and (match := PLACE.fullmatch(body)):
        yield match[1], in_list
    elif isinstance(body, dict | list):
        only = isinstance(body, list) and len(body) == 1
        for child in body.values() if isinstance(body, dict) else body:
            yield from places(child, in_list=in_list or only)


def fill_body(body: Any, keys: Sequence[Mapping[str, Any]]) -> Any:
    """Returns a body with keys in its places.

    A list of one item that has a place gets such an item for each key. Any other place gets
    the first key.
    """
    if isinstance(body, dict):
        return {name: fill_body(child, keys) for name, child in body.items()}
    if isinstance(body, list):
        keys_to_fill = keys if len(body) == 1 and any(places(body)) else keys[:1]
        return [fill_body(child, [key]) for key in keys_to_fill for child in body]
    match = PLACE.fullmatch(body) if isinstance(body, str) else None
    return body if match is None else keys[0][match[1]]


def _text(key: object) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(key).decode().strip('"')
