"""A producer without transactions: what it sent stays sent, and readers see it at once.

It fences nobody, so two runs of the same work may both do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Literal

import confluent_kafka as ck
from confluent_kafka import KafkaException

from windrow.ingest.kafka.clients import made
from windrow.ingest.kafka.properties import Value
from windrow.ingest.kafka.transaction import PRODUCER, Sender, unheard

Acks = Literal["0", "1", "all"]


class Delivery(Sender):
    """Messages as the brokers confirm them."""

    visible_at_once = True

    def __init__(self, properties: Mapping[str, Value], acks: Acks | None, patience: float) -> None:
        """Makes the producer; asks nothing.

        Args:
            properties: an AdminClient's, and what a producer has besides.
            acks: who confirms a message that may then get lost, or come twice; None:
                all replicas do, and the producer is idempotent.
            patience: as `Sender` has it.
        """
        self._sure = {**PRODUCER, **properties}
        self._unsure = acks is not None
        super().__init__(
            (
                self._sure
                if acks is None
                else {**self._sure, "enable.idempotence": False, "acks": acks}
            ),
            patience,
        )

    @cached_property
    def records(self) -> ck.Producer:
        """What sends the records of what was done: these are confirmed by all replicas,
        whatever the messages are.
        """
        return made(ck.Producer, self._sure, unheard) if self._unsure else self.producer

    def leave(self) -> None:
        """Send no more of what was given up."""
        for producer in {self.producer, self.records} if self._unsure else {self.producer}:
            with suppress(KafkaException, SystemError):
                if len(producer):
                    producer.purge()
