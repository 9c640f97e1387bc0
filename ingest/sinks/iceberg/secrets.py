"""The properties of a catalog that are secrets, and those that open a storage.

References to secrets are those of `ingest.settings.secrets`. Loads no PyIceberg.
"""

from __future__ import annotations

from collections.abc import Iterable

from windrow.ingest.settings.places import is_url, secret_part
from windrow.ingest.settings.secrets import Secret, read

Property = str | Secret

_SECRET = frozenset(
    {
        "s3.secret-access-key",
        "s3.session-token",
        "client.secret-access-key",
        "client.session-token",
        "adls.account-key",
        "adls.sas-token",
        "adls.client-secret",
        "gcs.oauth2.token",
    }
)

_PLAIN = frozenset(
    {
        "s3.endpoint",
        "s3.access-key-id",
        "s3.region",
        "s3.resolve-region",
        "s3.proxy-uri",
        "s3.connect-timeout",
        "s3.request-timeout",
        "s3.role-arn",
        "s3.role-session-name",
        "s3.force-virtual-addressing",
        "s3.retry-strategy-impl",
        "s3.anonymous",
        "client.access-key-id",
        "client.region",
        "client.role-arn",
        "client.role-session-name",
        "adls.account-name",
        "adls.tenant-id",
        "adls.client-id",
        "adls.blob-storage-authority",
        "adls.dfs-storage-authority",
        "adls.blob-storage-scheme",
        "adls.dfs-storage-scheme",
        "gcs.oauth2.token-expires-at",
        "gcs.default-bucket-location",
        "gcs.service.host",
        "hdfs.host",
        "hdfs.port",
        "hdfs.user",
        "hdfs.kerberos_ticket",
    }
)

STORAGE = _SECRET | _PLAIN
"""Properties by which PyIceberg opens a storage with Arrow; tasks need no others."""


def is_secret(name: str, value: str) -> bool:
    """Returns whether a property is a secret, by its name or as a URL with a password."""
    return name in _SECRET or (name in _PLAIN and is_url(value) and secret_part(value) is not None)


def revealed(properties: Iterable[tuple[str, Property]]) -> dict[str, str]:
    """Reads the values of references, in this process.

    Raises:
        SpecError: a variable isn't set, or a file can't be read; the error has no value.
    """
    return {
        name: value if isinstance(value, str) else read(value, f"sink.catalog.{name}")
        for name, value in properties
    }
