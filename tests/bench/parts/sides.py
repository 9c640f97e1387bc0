"""The sides of a comparison: their programs, and the form of their jobs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.bench.harness import environments
from tests.bench.harness.environments import PEERS, environment_folder, pinned_version
from tests.bench.harness.shapes import DAY, PARTITIONS, flink_type, neutral_type, spark_type
from tests.bench.parts import customers
from tests.bench.parts.targets import SINKS, Into, Job, kafka, looked_up, nowhere, parquet

MEASURED = Path(__file__).parents[1] / "measured"
Command = list[str | Path]


@dataclass(frozen=True)
class Side:
    """A side: a program, and the work that is measured.

    Attributes:
        name: the program's name.
        does: a description of the measured work.
        version: the program's version.
        command: makes the command from the broker's address.
        instructions: makes the program's job.
        into: the target of the rows.
        environment: further environment variables.
    """

    name: str
    does: str
    version: str
    command: Callable[[str], Command]
    instructions: Callable[[Job], dict[str, Any]]
    into: Into = nowhere
    environment: Mapping[str, str] = field(default_factory=dict)


# --------------------------------------------------------------------------------------------------


Step = Callable[[Job], dict[str, Any]]
"""Makes a step of windrow, as in a spec."""


def _windrow_told(work: str, step: Step | None, job: Job) -> dict[str, Any]:
    grid = {
        "grid": "daily",
        "windows": 1,
        "window_seconds": 86_400,
        "first_seconds": DAY.timestamp(),
    }
    about = {
        "work": work,
        "topic": job.topic,
        "stops": job.stops,
        "schema": job.shape.schema,
        "out": str(job.out),
    }
    steps = {"transform": {"steps": [step(job)]}} if step else {}
    return about | grid | {"sink": {"kind": "delta", "path": f"{job.out}/table"}} | steps | job.more


def windrow(
    work: str,
    does: str,
    into: Into = nowhere,
    master: str | None = None,
    step: Step | None = None,
) -> Side:
    """Returns windrow from this project, on a local Spark or at a master."""

    def command(bootstrap: str) -> Command:
        return [sys.executable, MEASURED / "program.py", bootstrap, *([master] if master else [])]

    instructions = partial(_windrow_told, work, step)
    return Side("windrow", does, f"on Spark {version('pyspark')}", command, instructions, into)


# --------------------------------------------------------------------------------------------------


def _into(work: str) -> Into:
    return {"table": parquet, "lookup": looked_up}.get(work, nowhere)


def _spark_command(bootstrap: str) -> Command:
    folder = environment_folder("spark", PEERS / "spark", environments.python_and_jars)
    return [folder / "venv/bin/python", PEERS / "spark/program.py", bootstrap, folder / "jars"]


def _spark_told(work: str, job: Job) -> dict[str, Any]:
    columns = ", ".join(f"{name} {spark_type(dtype)}" for name, dtype in job.shape.columns.items())
    return {"work": work, "topic": job.topic, "columns": columns, "out": str(job.out)}


def spark(work: str, does: str) -> Side:
    """Returns Spark's own Kafka source."""
    local = {"SPARK_LOCAL_IP": "127.0.0.1"}  # its servers listen on loopback only
    return Side(
        "Spark's Kafka source",
        does,
        pinned_version("spark", "pyspark"),
        _spark_command,
        partial(_spark_told, work),
        _into(work),
        local,
    )


FLINK_VERSION = (
    f"{pinned_version('flink', 'flink-clients')},"
    f" connector {pinned_version('flink', 'flink-sql-connector-kafka')}"
)
FLINK_JDBC = f"connector {pinned_version('flink', 'flink-connector-jdbc-postgres')}"
FLINK_JAVA = (
    "-Xmx3g",  # as much as Spark's driver, because all of Flink is one process here
    # Flink's own start scripts open these for Java 17 (env.java.opts.all in conf/config.yaml).
    *(
        f"--add-opens=java.base/java.{name}=ALL-UNNAMED"
        for name in ("lang", "net", "io", "nio", "text", "time", "util", "util.concurrent")
    ),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
FLINK = (
    "parallelism.default=2",  # a task for each core
    "taskmanager.numberOfTaskSlots=2",
    # Chained operators share objects, which Flink's documentation allows for SQL.
    "pipeline.object-reuse=true",
    "rest.bind-port=0",
    "rest.address=127.0.0.1",
)
FLINK_SOURCE = {
    "scan.startup.mode": "earliest-offset",
    "scan.bounded.mode": "latest-offset",
    # As for Spark: fewer and larger polls and fetches than the defaults of Kafka's client.
    "properties.max.poll.records": "10000",
    "properties.max.partition.fetch.bytes": "52428800",
}


def _flink_command(_: str) -> Command:
    folder = environment_folder("flink", PEERS / "flink", environments.jars)
    java = Path(os.environ["JAVA_HOME"]) / "bin/java"
    return [java, *FLINK_JAVA, "-cp", f"{folder}/jars/*", PEERS / "flink/FlinkSql.java", *FLINK]


def _flink_told(work: str, job: Job) -> dict[str, Any]:
    columns = ", ".join(
        f"`{name}` {flink_type(dtype)}" for name, dtype in job.shape.columns.items()
    )
    where = (
        ", `partition` INT METADATA VIRTUAL, `offset` BIGINT METADATA VIRTUAL, `timestamp`"
        " TIMESTAMP_LTZ(3) METADATA VIRTUAL"
    )
    metadata_columns = ", `partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP_LTZ(3)"
    source = FLINK_SOURCE | {
        "connector": "kafka",
        "topic": job.topic,
        "properties.bootstrap.servers": job.bootstrap,
    }
    source |= {"format": "raw" if work == "raw" else "json"}
    files = {"connector": "filesystem", "format": "parquet", "path": job.out.as_uri()}
    sinks: dict[str, Callable[[], dict[str, str]]] = {
        "table": lambda: files,
        "lookup": lambda: files,
        "kafka": lambda: _flink_topic(job),
    }
    sink = sinks.get(work, lambda: {"connector": "blackhole"})()
    made_of = "`value` BYTES" if work == "raw" else columns
    rows = "SELECT * FROM messages"
    lookup = list[str]()
    if work == "lookup":
        where += ", `now` AS PROCTIME()"
        lookup_columns = ", tier STRING, credit BIGINT"
        metadata_columns += lookup_columns
        lookup_options = _options(_flink_customers(job))
        lookup = [
            "DROP TEMPORARY TABLE IF EXISTS customers",
            (
                f"CREATE TEMPORARY TABLE customers (name STRING{lookup_columns})"
                f" WITH ({lookup_options})"
            ),
        ]
        names = ", ".join(f"m.`{name}`" for name in [*job.shape.columns, *_FLINK_PLACE])
        rows = (
            f"SELECT {names}, c.tier, c.credit FROM messages AS m"
            " LEFT JOIN customers FOR SYSTEM_TIME AS OF m.`now` AS c ON m.customer = c.name"
        )
    return {
        "statements": [
            "DROP TEMPORARY TABLE IF EXISTS messages",
            "DROP TEMPORARY TABLE IF EXISTS rows_of_them",
            *lookup,
            f"CREATE TEMPORARY TABLE messages ({made_of}{where}) WITH ({_options(source)})",
            (
                f"CREATE TEMPORARY TABLE rows_of_them ({made_of}{metadata_columns})"
                f" WITH ({_options(sink)})"
            ),
            f"INSERT INTO rows_of_them {rows}",
        ]
    }


_FLINK_PLACE = ("partition", "offset", "timestamp")


def _flink_customers(job: Job) -> dict[str, str]:
    """Returns the options of the table in PostgreSQL.

    Each task caches every key that it asked for.
    """
    server = urlsplit(job.postgres)
    return {
        "connector": "jdbc",
        "url": f"jdbc:postgresql://{server.hostname}:{server.port}{server.path}",
        "username": str(server.username),
        "password": "none",  # Flink requires a password with a username. The server needs none.
        "table-name": "customers",
        "lookup.cache": "PARTIAL",
        "lookup.partial-cache.max-rows": "1000000",
    }


def _flink_topic(job: Job) -> dict[str, str]:
    """Returns the options of the topic, which is the same as windrow's.

    Flink's default transaction timeout is an hour, but Kafka's brokers allow 15 minutes.
    """
    topic = job.more["sink"]["topic"]
    return {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": job.bootstrap,
        "format": "json",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": topic,
        "properties.transaction.timeout.ms": "900000",
        # windrow writes lz4 too. The batches are larger than the 16 KB of Kafka's client.
        "properties.compression.type": "lz4",
        "properties.batch.size": "1000000",
        "properties.linger.ms": "50",
    }


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in options.items())


def flink(work: str, does: str) -> Side:
    """Returns Flink SQL with its Kafka connector."""
    return Side(
        "Flink SQL", does, FLINK_VERSION, _flink_command, partial(_flink_told, work), _into(work)
    )


def flink_exactly_once(does: str) -> Side:
    """Returns Flink SQL from topic to topic.

    A batch job commits its transactions once at its end, so it doesn't wait for a checkpoint.
    """
    return Side(
        "Flink SQL", does, FLINK_VERSION, _flink_command, partial(_flink_told, "kafka"), kafka
    )


def _daft_command(bootstrap: str) -> Command:
    folder = environment_folder("daft", PEERS / "daft", environments.python)
    return [folder / "venv/bin/python", PEERS / "daft/program.py", bootstrap]


def _daft_told(work: str, job: Job) -> dict[str, Any]:
    columns = {"struct": {name: neutral_type(dtype) for name, dtype in job.shape.columns.items()}}
    return {
        "work": work,
        "topic": job.topic,
        "columns": columns,
        "stops": job.stops,
        "rows": job.messages,
        "out": str(job.out),
    }


def daft(work: str, does: str) -> Side:
    """Returns Daft's Kafka source."""
    quiet = {"DAFT_PROGRESS_BAR": "0", "DO_NOT_TRACK": "true"}  # no telemetry
    return Side(
        "Daft",
        does,
        pinned_version("daft", "daft"),
        _daft_command,
        partial(_daft_told, work),
        _into(work),
        quiet,
    )


def _librdkafka_command(bootstrap: str) -> Command:
    folder = environment_folder("librdkafka", PEERS / "librdkafka", environments.librdkafka)
    return [
        sys.executable,
        PEERS / "librdkafka/program.py",
        bootstrap,
        folder / "rdkafka_performance",
    ]


def _librdkafka_told(job: Job) -> dict[str, Any]:
    return {"topic": job.topic, "partitions": PARTITIONS, "rows": job.messages}


def librdkafka() -> Side:
    """Returns librdkafka's own performance program."""
    return Side(
        "librdkafka",
        "rdkafka_performance -C",
        f"in node-rdkafka {pinned_version('librdkafka', 'node-rdkafka')}",
        _librdkafka_command,
        _librdkafka_told,
    )


def _kcat_command(bootstrap: str) -> Command:
    return [
        sys.executable,
        PEERS / "kcat/program.py",
        bootstrap,
        environment_folder("kcat", PEERS / "kcat", environments.debian),
    ]


def kcat() -> Side:
    """Returns kcat from the system's package manager."""
    return Side(
        "kcat",
        "to nowhere",
        "of the system's packages",
        _kcat_command,
        lambda job: {"topic": job.topic},
    )


# The other sides of a comparison are compared with the first one.
COMPARISONS: dict[str, tuple[Side, ...]] = {
    "raw": (
        windrow("raw", "read"),
        kcat(),
        librdkafka(),
        spark("raw", "noop"),
        flink("raw", "blackhole"),
        daft("raw", "sum of bytes"),
    ),
    "decoded": (
        windrow("rules", "strict JSON, pandera"),
        windrow("decoded", "strict JSON"),
        spark("parsed", "from_json, noop"),
        flink("parsed", "json, blackhole"),
    ),
    "table": (
        windrow("table", "strict JSON, pandera, Delta commit", parquet),
        spark("table", "from_json, Parquet"),
        flink("table", "json, Parquet"),
        flink("parsed", "json, blackhole"),
        daft("table", "deserialize, Parquet"),
    ),
}


def _beside_decoding(noun: str, into: Into) -> tuple[Side, ...]:
    return windrow("table", f"into {noun}", into), windrow("rules", "decoding and validation alone")


SINK_COMPARISONS = {name: _beside_decoding(noun, into) for name, (noun, into) in SINKS.items()} | {
    "kafka-flink": (
        windrow("table", "into a Kafka topic", kafka),
        flink_exactly_once("into a Kafka topic, exactly once"),
    ),
}
"""The comparisons of the sinks, by the name of their part after `sinks.`.

A sink is compared with the same program without a sink, or with a peer.
"""


def _in_postgres(job: Job) -> dict[str, Any]:
    return customers.lookup({"sql": job.postgres, "relation": "customers"})


def _in_delta(job: Job) -> dict[str, Any]:
    return customers.lookup({"table": job.customers})


_WITHOUT = windrow("table", "no lookup, Delta commit", parquet)
LOOKUPS = {
    "sql": (
        windrow("table", "lookup in PostgreSQL, Delta commit", looked_up, step=_in_postgres),
        flink("lookup", "JDBC lookup join, partial cache, Parquet"),
        _WITHOUT,
    ),
    "table": (
        windrow("table", "lookup in a Delta table, Delta commit", looked_up, step=_in_delta),
        _WITHOUT,
    ),
}
"""The comparisons of the lookups, by the name of their part after `lookup.`.

A lookup is compared with a peer, and with the same program without the lookup.
"""
