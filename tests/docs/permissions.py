"""Generates `docs/permissions.md` from the table that its tests share: `make docs`.

`python -m tests.docs.permissions` does the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

from tests.permissions.features import KAFKA, LEDGERS, LOOKUPS, POSTGRES, SINKS
from windrow.ingest.kafka.rights import Right

PAGE = Path(__file__).parents[2] / "docs" / "permissions.md"

_STATEMENT = re.compile(r"GRANT (?P<names>\w+) (?P<rest>ON .*)")

INTRODUCTION = """\
# Rights

*Generated from `tests/permissions/features.py` by `make docs`.*

The least rights that a user of windrow needs, for each feature. The features of pipelines and DataFrames were tried on real Kafka, PostgreSQL and
MariaDB: each works with these rights, and is refused if one of them is missing. `infer`, `peek` and `lag` ask the questions of a pipeline that reads, and
weren't tried one by one. An error names the missing right and has the command that grants it; `windrow doctor SPEC` lists all that it can ask for at
once. A pipeline needs the rights of all features that it uses.

## Kafka

Read and Write include Describe. For topics that begin alike, add `--resource-pattern-type prefixed` to the command.
"""  # noqa: E501

KAFKA_NOTES = """\
- To read, no right on a consumer group is needed: windrow's consumers are in the group `windrow`, join nothing and commit nothing.
- A topic on which the client lacks Describe isn't listed. So `topic_pattern` passes over it **without an error**: grant the rights by a prefix
  that covers the pattern.
- No right on the cluster is needed. With DescribeConfigs on it and on the sink's topics, windrow also checks the settings of brokers and topics
  that `delivery_guarantee: exactly-once` relies on; without it, it takes Kafka's defaults for granted.
- If the control topic is new, the first run looks for messages of this pipeline in the sink's topics. Without Read on these it can't.
- `PREFIX` is `sink.transactional_id_prefix`, by default `windrow`. Give each pipeline a prefix of its own if others mustn't end its transactions.
  Kafka tells rights on transactional ids only to who has Describe on the cluster, so `windrow doctor` doesn't ask for them: the first run tells.
- Spark's tasks log in as the driver does. They need Read on `TOPIC` alone.
- Brokers before Kafka 3.0 also want IdempotentWrite on the cluster from whoever publishes dead letters. That wasn't tried.
"""  # noqa: E501

POSTGRES_NOTES = """\
- Who makes a table owns it. To write into a table, windrow's user must own it, because it makes indexes, keeps their summaries, and adds columns; a table
  that you made is given away by `ALTER TABLE sales.orders OWNER TO loader`. The table of dead letters is `sales.orders_dead`.
- `windrow` is `sink.windrow_schema`. To make a table with a primary key, the user needs CREATE in it, too, for the table of the deleted keys.
- `windrow verify SPEC --restore-receipts` needs DELETE on `windrow.receipts`.
- `GRANT CREATE` isn't needed any more once the tables are there.

## MySQL and MariaDB

`lookup` in the table `sales.customers` (tried on MariaDB):

```sql
GRANT SELECT ON `sales`.`customers` TO 'loader';
```

## Files, buckets and services

No test tries these: the object store of the tests checks no rights.
"""  # noqa: E501


def page() -> str:
    """Returns the page."""
    kafka = (_block(f.setting, "sh", _commands(f.rights)) for f in KAFKA)
    postgres = (_block(f.setting, "sql", _merged(f.statements)) for f in POSTGRES)
    places = (
        _table(title, kinds)
        for title, kinds in (
            ("`sink.kind`", SINKS),
            ("`from` of a `lookup`", LOOKUPS),
            ("`state`", LEDGERS),
        )
    )
    parts = [INTRODUCTION, *kafka, KAFKA_NOTES, "## PostgreSQL\n", *postgres, POSTGRES_NOTES]
    return "\n".join([*parts, *places])


def _block(title: str, language: str, lines: Iterable[str]) -> str:
    return "\n".join([f"{title}:\n", f"```{language}", *lines, "```\n"])


def _commands(rights: Iterable[Right]) -> Iterator[str]:
    """Yields one command for each resource."""
    for (resource, name, is_prefix), group in groupby(
        sorted(rights, key=lambda right: (right.resource, right.name)),
        key=lambda right: (right.resource, right.name, right.is_prefix),
    ):
        operations = " --operation ".join(dict.fromkeys(right.operation for right in group))
        yield Right(operations, resource, name, is_prefix).grant("HOST:9092")


def _merged(statements: Iterable[str]) -> Iterator[str]:
    """Yields one statement for each object."""
    found = [re.fullmatch(_STATEMENT, statement) for statement in statements]
    for rest, group in groupby((match for match in found if match), key=lambda m: m["rest"]):
        yield f"GRANT {', '.join(match['names'] for match in group)} {rest};"


def _table(title: str, kinds: Mapping[str, str]) -> str:
    rows = (f"| `{kind}` | {rights} |" for kind, rights in kinds.items())
    return "\n".join([f"| {title} | rights |", "| --- | --- |", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
