"""A real broker that asks its authorizer for each request of a client that logs in.

Clients of the first port, which listens in clear, may do everything.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, untyped
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from windrow.ingest.kafka.embedded.server import EmbeddedBroker, free_port
from windrow.ingest.kafka.rights import Right

PASSWORD = "C4nary-guarded"
SECONDS = 20.0
"""Limit of the wait until the broker knows a new login or right."""

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}


class GuardedBroker(EmbeddedBroker):
    """A broker with Kafka's own authorizer.

    Attributes:
        guarded: address that asks for a user and a password.
    """

    guarded: str

    def _configure(self) -> None:
        super()._configure()
        port = free_port(int(self.bootstrap.rpartition(":")[2]))
        self.guarded = f"127.0.0.1:{port}"
        self._numbers = itertools.count()
        config = self._folder / "server.properties"
        text = config.read_text()
        for name, more in {
            "listeners": f"GUARDED://{self.guarded}",
            "advertised.listeners": f"GUARDED://{self.guarded}",
            "listener.security.protocol.map": "GUARDED:SASL_PLAINTEXT",
        }.items():
            text = text.replace(f"\n{name}=", f"\n{name}={more},")
        config.write_text(
            f"{text}\nauthorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "super.users=User:ANONYMOUS\nsasl.enabled.mechanisms=SCRAM-SHA-256\n"
            "listener.name.guarded.scram-sha-256.sasl.jaas.config="
            "org.apache.kafka.common.security.scram.ScramLoginModule required;\n"
        )

    def user(self, rights: Iterable[Right]) -> dict[str, object]:
        """Returns the client properties of a new user who has these rights and no other."""
        name = f"u{next(self._numbers)}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        login = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), PASSWORD.encode()
        )
        for future in admin.alter_user_scram_credentials([login]).values():
            future.result(SECONDS)
        deadline = time.monotonic() + SECONDS
        while not _has_login(admin, name):
            assert time.monotonic() < deadline, "the broker doesn't learn the login"
        grant(self.bootstrap, name, rights)
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": name,
            "sasl.password": PASSWORD,
        }


def grant(bootstrap: str, user: str, rights: Iterable[Right]) -> None:
    """Gives rights to a user, and waits until the broker knows them."""
    rights = list(rights)
    if not rights:
        return
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_acls([_binding(user, right) for right in rights]).values():
        future.result(SECONDS)
    deadline = time.monotonic() + SECONDS
    mine = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        f"User:{user}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    while len(admin.describe_acls(mine).result(SECONDS)) < len(set(rights)):
        assert time.monotonic() < deadline, "the broker doesn't learn the rights"


def _has_login(admin: AdminClient, user: str) -> bool:
    """Returns whether the broker knows the user."""
    try:
        admin.describe_user_scram_credentials([user])[user].result(SECONDS)
    except KafkaException:
        return False
    return True


def _binding(user: str, right: Right) -> Any:
    operation = "".join(f"_{c}" if c.isupper() else c for c in right.operation).strip("_").upper()
    return AclBinding(
        _RESOURCES[right.resource],
        right.name or "kafka-cluster",
        ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )
