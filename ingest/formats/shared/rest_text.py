"""Text of what no column is for, which a row keeps (`unknown: keep`).

The text is one JSON object. A field at the top of the row keeps its name. The name of any other
field is a JSON pointer (RFC 6901) from the row on, and so is a name that begins with `/`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from windrow.ingest.errors import format_count
from windrow.ingest.formats.shared.budget import REST_SHARE, rest_budget
from windrow.ingest.formats.shared.refusal import RefusedValueError


def pointer_name(name: str) -> str:
    """Returns a name as a part of a JSON pointer, in the form of a JSON string."""
    return json.dumps(name.replace("~", "~0").replace("/", "~1"), ensure_ascii=False)[1:-1]


def kept_name(names: Sequence[str]) -> str:
    """Returns the name of a field in the text, as a JSON string.

    Args:
        names: the names on the way from the row to the field, and the field's own.
    """
    if len(names) == 1 and not names[0].startswith("/"):
        return json.dumps(names[0], ensure_ascii=False)
    return '"' + "".join(f"/{pointer_name(name)}" for name in names) + '"'


class RestText:
    """Text of one message, as long as it is bounded by the message."""

    def __init__(self, size: int, share: int = REST_SHARE) -> None:
        """Begins an empty text.

        Args:
            size: the bytes of the message.
            share: the bytes of the text for each of them.
        """
        self._share, self._room = share, rest_budget(size, share) - 1
        self._members = list[str]()

    def add(self, member: str) -> None:
        """Adds a member: a name, a colon and a value.

        Raises:
            RefusedValueError: the text is too large.
        """
        self._members.append(member)
        self._room -= len(member.encode()) + 1
        if self._room < 0:
            raise RefusedValueError(
                "too_large",
                "Expected fields without a column of at most 1 MB, and of at most"
                f" {format_count(self._share, 'byte')} for each byte of the message",
                "",
            )

    @property
    def text(self) -> str | None:
        """The text; None if there is nothing to keep."""
        return "{" + ",".join(self._members) + "}" if self._members else None
