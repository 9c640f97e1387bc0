"""Defaults for libpq's connections to PostgreSQL, and advice for its TLS errors.

It works on texts only and needs no driver.
"""

from __future__ import annotations

TCP = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    # milliseconds; a dead server is also noticed while data is being sent to it
    "tcp_user_timeout": "30000",
}
"""The values of connection parameters that the URL leaves out."""

_AUTHORITY = (
    "`sslrootcert` in the URL (or PGSSLROOTCERT) names the file with the certificate of the"
    " authority that signed the server's, `sslrootcert=system` those that this machine trusts."
    " Without it libpq reads ~/.postgresql/root.crt."
)
_ADVICE = {
    "does not match host name": (
        "Write the host in the URL as the server's certificate names it, or have one made that"
        " names this host."
    ),
    "certificate verify failed": _AUTHORITY,
    "root certificate file": _AUTHORITY,
    "may not be used with sslrootcert=system": (
        "Write sslmode=verify-full in the URL: without the host's name any certificate would do."
    ),
    "server does not support SSL": (
        "Set ssl=on at the server, with a certificate. With sslmode=disable all would go in clear."
    ),
}
"""The advice by words in errors of libpq and OpenSSL, because TLS errors have no SQLSTATE."""


def tls_advice(text: str) -> str | None:
    """Returns the advice for an error of libpq that is a TLS failure; None for other errors.

    Another attempt doesn't fix a TLS failure. If a URL has several hosts, one untrusted
    host is enough for the failure: it must be fixed before that host is needed.
    """
    return next((advice for words, advice in _ADVICE.items() if words in text), None)
