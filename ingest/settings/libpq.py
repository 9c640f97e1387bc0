"""What libpq is told, and what it says of a PostgreSQL server that isn't to be trusted.

Text only: no driver is needed.
"""

from __future__ import annotations

TCP = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    # milliseconds: a server that is gone is noticed while something is sent to it, too
    "tcp_user_timeout": "30000",
}
"""What libpq is told where the URL doesn't say."""

_AUTHORITY = (
    "`sslrootcert` in the URL (or PGSSLROOTCERT) names the file with the certificate of the"
    " authority that signed the server's, `sslrootcert=system` those that this machine trusts."
    " Without it libpq reads ~/.postgresql/root.crt."
)
_CURES = {
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
"""Words of libpq's own errors and of OpenSSL's, which no SQLSTATE tells apart, and what to do."""


def tls_cure(text: str) -> str | None:
    """What to do about an error of libpq's, if it is that TLS failed by what the URL or
    the server's certificate says; None of any other.

    The next try would end the same way. Of several hosts one that isn't trusted is
    enough: somebody has to mend it before it is needed.
    """
    return next((cure for words, cure in _CURES.items() if words in text), None)
