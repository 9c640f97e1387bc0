"""Errors of connections in words, without what the other side may have put into them."""

from __future__ import annotations

import ssl

_LONGEST_NAME = 300
"""The most characters of another author's name in an error."""


def describe_connection_error(error: BaseException) -> str:
    """Returns the type of an error and of its first cause.

    For a certificate that isn't trusted it is the library's own reason.
    """
    root = error
    while (cause := root.__cause__ or root.__context__) is not None:
        root = cause
    if isinstance(root, ssl.SSLCertVerificationError):
        return f"its certificate isn't trusted: {printable(root.verify_message)}"
    return ", ".join(dict.fromkeys((type(error).__name__, type(root).__name__)))


def printable(name: str) -> str:
    """Returns the printable characters of a name that windrow didn't choose."""
    return "".join(c for c in name if c.isprintable())[:_LONGEST_NAME]
