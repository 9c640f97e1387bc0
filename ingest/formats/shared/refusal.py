"""Refusal of a message with a reason, and the rule for timestamps that are too fine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.ingest.ports.decoder import SCHEMA, VALUE

if TYPE_CHECKING:
    from windrow.ingest.schema.columns import Finer

_BYTE_ORDER_MARK = "\ufeff"
_OF_THE_SCHEMA = frozenset(
    {
        "wrong_type",
        "wrong_format",
        "out_of_range",
        "missing",
        "unknown_field",
        "field_count",
        "other_record",
    }
)


class RefusedValueError(ValueError):
    """Refusal of a value.

    It never holds the value: its path has only names of the schema, and positions.

    Attributes:
        reason: a short reason to count by.
        detail: the expected value, and the path at which it was expected.
    """

    def __init__(self, reason: str, message: str, path: str = "$") -> None:
        super().__init__(reason, message, path)
        self.reason = reason
        self.detail = f"{message} - at {path}" if path else message

    @property
    def stage(self) -> str:
        """Stage that refuses the value.

        `SCHEMA` if the value is of its format but doesn't fit the columns, else `VALUE`.
        """
        return SCHEMA if self.reason in _OF_THE_SCHEMA else VALUE


def text_of(message: bytes, language: str) -> str:
    """Returns the text of a message in UTF-8.

    Args:
        message: the message's bytes.
        language: `JSON` or `CSV`, for the refusal.

    Raises:
        RefusedValueError: the message isn't UTF-8, or it begins with a byte-order mark,
            which the language doesn't allow.
    """
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise RefusedValueError(
            "invalid_utf8", f"Expected UTF-8, got {error.reason} (byte {error.start})", ""
        ) from None
    if text.startswith(_BYTE_ORDER_MARK):
        raise RefusedValueError(
            f"not_{language.lower()}", f"Expected {language}, got a byte-order mark", ""
        )
    return text


class Truncation:
    """Rule of the spec for timestamps finer than a microsecond, and flags of one message.

    Attributes:
        done: whether a timestamp of the message was truncated.
        ignored: whether the message has a field that no column is for.
    """

    def __init__(self, finer: Finer = "truncate") -> None:
        self.done = self.ignored = False
        self._finer = finer

    def note_cut(self, path: str) -> None:
        """Notes a timestamp that is finer than a microsecond.

        Raises:
            RefusedValueError: the spec has `finer: dead`, which refuses such timestamps.
        """
        if self._finer == "dead":
            raise RefusedValueError(
                "out_of_range", "Expected a timestamp of whole microseconds", path
            )
        self.done = True
