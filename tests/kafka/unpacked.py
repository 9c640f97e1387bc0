"""`python -m tests.kafka.unpacked BOOTSTRAP TOPIC STOP` reads a topic up to an offset.

It prints the memory in MiB that this took beside what the process had before.
"""

from __future__ import annotations

import sys

from tests.contracts.reader_contract import plan_of
from tests.processes import peak_mib
from windrow.ingest.kafka.broker import KafkaBroker
from windrow.ingest.kafka.client_properties import consumer_recipe
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.plan import Split
from windrow.ingest.ports.reader import read_until
from windrow.ingest.source.reader.reader import KafkaReader


def main() -> None:
    bootstrap, topic, stop = sys.argv[1:]
    plan = plan_of(KafkaBroker(bootstrap, {}), TopicPartition(topic, 0))
    reader, before = KafkaReader(consumer_recipe(bootstrap, {}), plan), peak_mib()
    read_until(reader, Split(topic, 0, 0, int(stop)), lambda _: False)
    print(peak_mib() - before)


if __name__ == "__main__":
    main()
