"""Rights of a client in Kafka: what a request needs, and the command that grants it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # untyped

from windrow.ingest.errors import SpecError, Stage
from windrow.ingest.kafka.error_codes import FORBIDDEN

READ_TOPIC = ("Read", "DescribeConfigs")
"""What windrow needs on a topic that it reads. Read and Write include Describe."""

Resource = Literal["topic", "group", "transactional-id", "cluster"]


class Right(msgspec.Struct, frozen=True):
    """An operation that a client may do with a resource.

    Attributes:
        operation: the operation, as `kafka-acls.sh` writes it.
        resource: the type of the resource.
        name: the resource's name, or the prefix of its name; "" for the cluster.
        is_prefix: whether the right is for all names that begin with `name`.
    """

    operation: str
    resource: Resource
    name: str = ""
    is_prefix: bool = False

    def __str__(self) -> str:
        noun = self.resource.replace("-id", " id")
        resources = f"each {noun} that begins with" if self.is_prefix else f"the {noun}"
        return f"{self.operation} on {resources} {self.name}".rstrip()

    def grant(self, bootstrap: str) -> str:
        """Returns the command that grants the right."""
        resource = f"--{self.resource}" + (f" {self.name}" if self.name else "")
        prefixed = " --resource-pattern-type prefixed" if self.is_prefix else ""
        return (
            f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal User:NAME"
            f" --operation {self.operation} {resource}{prefixed}"
        )


def lacks(description: Any, operation: str) -> bool:
    """Returns whether this client may not do an operation with a topic or a group.

    Args:
        description: the cluster's description with this client's rights, or its error.
        operation: Read, Write or Describe.
    """
    if isinstance(description, KafkaException):
        return description.args[0].code() in FORBIDDEN
    rights = description.authorized_operations  # None, if the cluster doesn't tell them
    return rights is not None and AclOperation[operation.upper()] not in rights


def lacking_error(
    rights: Sequence[Right],
    bootstrap: str,
    stage: Stage,
    topic: str | None = None,
    partition: int | None = None,
) -> SpecError:
    """Makes the error for a client that lacks rights, with the commands that grant them."""
    commands = "; ".join(right.grant(bootstrap) for right in rights)
    return SpecError(
        f"On the cluster {bootstrap} this client lacks {', '.join(map(str, rights))}",
        stage,
        f"Grant it, with the user of the client's login for NAME: {commands}",
        topic,
        partition,
    )
