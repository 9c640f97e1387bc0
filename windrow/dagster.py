"""The public face for Dagster: what a code location may rely on; `docs/python.md` lists it.

- `KafkaTable`: a pipeline in a file, as a component: `type:
  windrow.dagster.KafkaTable`.
- `kafka_table(spec)`: the same from Python: the table's asset, with its topics,
  schedule and checks.
- `standing_on(definitions, resources)`: definitions on other resources, such as a
  `KafkaSource`, `Table`, `LedgerState` or `Spark`, each under the key that
  `kafka_key(spec)`, `sink_key(spec)`, `ledger_key(spec)` or `SPARK_KEY` says.
- `table_key(spec)`, `partitions_of(spec.window)`, `when_complete(spec, target)`: for
  what comes after a table.
"""

from windrow.assets.completeness import when_complete
from windrow.assets.component import KafkaTable
from windrow.assets.factory import kafka_table, standing_on
from windrow.assets.names import SPARK_KEY, kafka_key, ledger_key, sink_key, table_key
from windrow.assets.partitions import partitions_of
from windrow.resources.kafka import KafkaSource
from windrow.resources.ledger import LedgerState
from windrow.resources.spark import Spark
from windrow.resources.table import Table

__all__ = [
    "SPARK_KEY",
    "KafkaSource",
    "KafkaTable",
    "LedgerState",
    "Spark",
    "Table",
    "kafka_key",
    "kafka_table",
    "ledger_key",
    "partitions_of",
    "sink_key",
    "standing_on",
    "table_key",
    "when_complete",
]
