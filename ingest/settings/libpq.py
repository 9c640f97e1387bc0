"""Defaults for libpq's connections to PostgreSQL, and remedies for its TLS errors.

Text only: no driver is needed.
"""

from __future__ import annotations

TCP = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    # milliseconds: a dead server is noticed also while something is sent to it
    "tcp_user_timeout": "30000",
}
"""Connection parameters for those that the URL leaves out."""

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
"""Remedies, by words in the errors of libpq and OpenSSL, which have no SQLSTATE."""


def tls_advice(text: str) -> str | None:
    """Returns the remedy for an error of libpq that is a TLS failure.

    None for other errors. Another try wouldn't mend a TLS failure: one untrusted host
    among several is enough, and must be repaired before it is needed.
    """
    return next((advice for words, advice in _ADVICE.items() if words in text), None)
