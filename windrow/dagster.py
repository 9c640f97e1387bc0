"""The public names for Dagster code locations; `docs/python.md` lists them.

- `KafkaTable`: a component that makes a pipeline from a file with `type:
  windrow.dagster.KafkaTable`.
- `kafka_table(spec)`: makes the same definitions in Python: the table's asset, with its
  topics, schedule and checks.
- `standing_on(definitions, resources)`: replaces resources of definitions, such as a
  `KafkaSource`, `Table`, `LedgerState` or `Spark`, each under its key:
  `kafka_key(spec)`, `sink_key(spec)`, `ledger_key(spec)` or `SPARK_KEY`.
- `table_key(spec)`, `partitions_of(spec)`, `when_complete(spec, target)`: for
  assets downstream of a table.
"""

from windrow.assets.completeness import when_complete
from windrow.assets.component import KafkaTable
from windrow.assets.factory import kafka_table, standing_on
from windrow.assets.names import SPARK_KEY, kafka_key, ledger_key, sink_key, table_key
from windrow.assets.partitions import partitions_of
from windrow.resources.kafka import KafkaSource
from windrow.resources.spark import Spark
from windrow.resources.table import LedgerState, Table

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
