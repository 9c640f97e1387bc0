"""What meets faults: kinds of sinks and ledgers, and commands, each a line of a table."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import psycopg

from tests.cli.conftest import HOURLY, SCHEMA, hour
from tests.faults.injector import Channel, Injector
from tests.faults.line import FaultLine
from tests.formats.avro.wire import varint
from tests.formats.confluent.registries import framed
from tests.kafka.produce import Put, create_topic, produce
from tests.lookups import test_http
from tests.registry.server import RegistryServer
from tests.s3.server import S3Server
from tests.sinks.iceberg import rest
from windrow.ingest.model.boundary import TopicPartition
from windrow.ingest.model.instants import parse_instant

FIRST, SECOND = hour(0), hour(1)
BOTH = f"{hour(0)}/{hour(2)}"


class Command(msgspec.Struct, frozen=True):
    """A command that meets faults.

    Attributes:
        arguments: its arguments, with SPEC for the pipeline's file, and AGED for one by which the
            rows of the first hour are too old.
        setup: the commands before it.
        without: the kinds of sinks, and the places, that refuse it.
        code: its exit code without a fault.
        once: whether it refuses to do its work twice.
        after: the commands that end its effect.
    """

    arguments: Sequence[str]
    setup: Sequence[Sequence[str]] = ()
    without: Sequence[str] = ()
    code: int = 0
    once: bool = False
    after: Sequence[Sequence[str]] = ()


RUN = ("run", "SPEC", "--window", FIRST)
PAUSE = ("pause", "SPEC", "--why", "faults", "--who", "us")
RESUME = ("resume", "SPEC", "--who", "us")
COMMANDS = {
    "run": Command(RUN),
    "run again": Command(("run", "SPEC", "--window", BOTH), (RUN,)),
    "replay": Command(("replay", "SPEC", "--window", FIRST), (RUN,), ("kafka",)),
    "plan": Command(("plan", "SPEC", "--window", SECOND), (RUN,)),
    "verify": Command(("verify", "SPEC", "--deep"), (RUN,)),
    "doctor": Command(("doctor", "SPEC"), (RUN,)),
    "infer": Command(
        ("infer", "TOPIC", "new", "--bootstrap", "BROKER"), without=("asking",), code=1, once=True
    ),
    "lag": Command(("lag", "SPEC"), (RUN,)),
    "dead show": Command(("dead", "show", "SPEC"), (RUN,)),
    "dead replay": Command(
        ("dead", "replay", "SPEC", "--window", FIRST, "--edit", "edit.py"),
        (RUN,),
        ("kafka", "asking"),
    ),
    "show": Command(("show", "SPEC"), (RUN,)),
    "state": Command(("state", "SPEC", "--window", FIRST), (RUN,)),
    "due": Command(("due", "SPEC"), (RUN,)),
    "peek": Command(("peek", "SPEC"), (RUN,)),
    "pause": Command(PAUSE, (RUN,), after=(RESUME,)),
    "resume": Command(RESUME, (RUN, PAUSE)),
    "maintain": Command(("maintain", "SPEC"), (RUN,)),
    "maintain aged": Command(
        ("maintain", "AGED"), (RUN,), ("kafka", "routes", "iceberg here", "asking")
    ),
    "rebase": Command(("rebase", "SPEC"), (RUN,), code=2),
    "rebind": Command(("rebind", "SPEC"), (RUN,), code=2),
}

SPARED = {"init", "try", "help", "prepare", "broker run", "spark run"}
"""The commands that ask no service of a pipeline, and write no table and no ledger."""

POSTGRES = "'postgresql://postgres@POSTGRES/DATABASE?sslmode=disable'"
SINKS = {
    "delta": "{path: lake/things}",
    "files": "{kind: files, path: lake/things}",
    "iceberg": (
        "{kind: iceberg, warehouse: lake, table: shop.things, mode: upsert, primary_key: [id]}"
    ),
    "postgres": f"{{kind: postgres, url: {POSTGRES}, table: things, staging: staged}}",
    "sqlite": "{kind: sqlite, path: orders.sqlite, table: orders}",
    "kafka": (
        "{kind: kafka, bootstrap_servers: 'BROKER', topic: OUT, staging: staged,"
        " key: {columns: [id]}}"
    ),
    "routes": (
        "{kind: routes, by: column, name: id, tables: [{pattern: '.*[0-4]', sink:"
        " {path: lake/first}}], other: {kind: files, path: lake/things}}"
    ),
}
"""The sections of the kinds of sinks."""

REMOTE = {
    "delta": "{path: 'BUCKET/things'}",
    "files": "{kind: files, path: 'BUCKET/things'}",
    "iceberg": (
        "{kind: iceberg, catalog: {type: rest, uri: 'CATALOG', token: {env: TOKEN}},"
        " table: shop.things}"
    ),
}
"""The sections of kinds whose tables are in an object store, or in a catalog with a server."""

LEDGERS = {"sqlite": "state.db", "postgresql": POSTGRES}

PLACES = {
    "asking": ("asking", SINKS["sqlite"], "sqlite"),
    **{f"{kind} here": (kind, section, "sqlite") for kind, section in SINKS.items()},
    **{f"{kind} remote": (kind, section, "postgresql") for kind, section in REMOTE.items()},
}
"""The kind of sink, its section, and the kind of ledger, by the name of a place."""


def commands_at(place: str) -> list[str]:
    """Returns the commands that a place takes."""
    names = {place, PLACES[place][0]}
    return [name for name, command in COMMANDS.items() if names.isdisjoint(command.without)]


SPEC = """\
id: things
source: {bootstrap_servers: "BROKER", topic: TOPIC}
window: {WINDOW}
decode: {schema: "schema.py:Thing"}
limits: {max_dead_ratio: 0.6}
sink: SINK
state: STATE
"""
ASKING = {
    "topic: TOPIC": "topic: TOPIC, registry: {url: 'REGISTRY'}",
    "decode: {": "decode: {format: avro-confluent, records: [Thing], ",
    "sink: SINK": """\
transform:
  steps:
    - lookup: names
      key: {id: id}
      take: {name: name}
      from: {http: "SERVICE/{id}", schema: "schema.py:Named"}
sink: SINK""",
}
"""The changes of the spec for a place that asks a schema registry and a service for lookups."""

NAMED = """

class Named(Thing):
    name: pl.String
"""
AVRO = '{"type": "record", "name": "Thing", "fields": [{"name": "id", "type": "long"}]}'
EDIT = """\
from dataclasses import replace


def edit(message):
    return replace(message, value=b'{"id": %d}' % (1000 * message.partition + message.offset))
"""


class PostgresServer(msgspec.Struct, frozen=True):
    """A PostgreSQL server.

    Attributes:
        url: its URL, by its socket.
        socket: the path of its socket.
    """

    url: str
    socket: str

    @classmethod
    def at(cls, url: str) -> PostgresServer:
        """Makes the server of a URL that names the folder of its socket."""
        (folder,) = parse_qs(urlsplit(url).query)["host"]
        return cls(url, next(str(path) for path in Path(folder).glob(".s.PGSQL.*[0-9]")))

    @contextmanager
    def database(self) -> Iterator[str]:
        """Makes a database, and removes it at the end."""
        name = f"faults_{uuid.uuid4().hex}"
        for statement in (f"CREATE DATABASE {name}", f"DROP DATABASE {name} WITH (FORCE)"):
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(statement)
            if statement.startswith("CREATE"):
                yield name


class Topic(msgspec.Struct, frozen=True):
    """A topic, and its messages as the checker takes them."""

    name: str
    produced: Mapping[TopicPartition, Mapping[int, object]]


class Servers(msgspec.Struct, frozen=True):
    """The servers that cases share.

    Attributes:
        kafka: the address of the broker.
        topics: the topics that pipelines read: JSON, and Avro with the registry's schema.
        postgres: the PostgreSQL server.
        s3: the S3 server.
        registry: the address of the schema registry.
        service: the address of the service of the lookups.
    """

    kafka: str
    topics: Mapping[str, Topic]
    postgres: PostgresServer
    s3: S3Server
    registry: str
    service: str


@contextmanager
def serving(kafka: str, postgres_url: str, s3: S3Server) -> Iterator[Servers]:
    """Yields the servers, after the topics are made."""
    named = test_http.serving(lambda _: test_http.Reply({"name": "n"}))
    with RegistryServer() as registry, named as service:
        schema_id = registry.register("things-value", AVRO)
        topics = {
            "json": produce_things(kafka, lambda number: b'{"id": %d}' % number),
            "avro": produce_things(kafka, lambda number: framed(schema_id, varint(number))),
        }
        addresses = (url.removeprefix("http://") for url in (registry.url, service.url))
        yield Servers(kafka, topics, PostgresServer.at(postgres_url), s3, *addresses)


HOURS, PARTITIONS = 3, 2


def produce_things(kafka: str, encode: Callable[[int], bytes]) -> Topic:
    """Makes a topic with five messages in each hour and topic-partition; one can't be decoded."""
    topic = create_topic(kafka, PARTITIONS)
    produced: dict[TopicPartition, dict[int, object]] = {}
    for partition in range(PARTITIONS):
        puts = []
        for offset in range(5 * HOURS):
            number = 1000 * partition + offset
            value = b"no thing" if offset % 5 == 4 else encode(number)
            timestamp = int(parse_instant(hour(offset // 5)).timestamp() * 1000) + offset
            puts.append(Put(value, timestamp, partition))
            produced.setdefault(TopicPartition(topic, partition), {})[offset] = number
        produce(kafka, topic, puts)
    return Topic(topic, produced)


class Place(msgspec.Struct, frozen=True):
    """The folder of a pipeline, and what its process must know.

    Attributes:
        folder: the folder.
        env: environment variables.
        words: what stands for a word in capitals of a command's arguments.
        produced: the messages of its topic.
    """

    folder: Path
    env: Mapping[str, str]
    words: Mapping[str, str]
    produced: Mapping[TopicPartition, Mapping[int, object]]


@contextmanager
def open_place(name: str, servers: Servers, folder: Path, injector: Injector) -> Iterator[Place]:
    """Writes a pipeline into a new folder, with lines to its servers that a fault may hit."""
    _, section, ledger = PLACES[name]
    text = fill(SPEC, ASKING if name == "asking" else {})
    text = text.replace("SINK", section).replace("STATE", LEDGERS[ledger])
    topic = servers.topics["avro" if name == "asking" else "json"]
    env = dict[str, str]()
    words = {"SPEC": "things.yaml", "AGED": "aged.yaml", "TOPIC": topic.name}
    with ExitStack() as opened:

        def line(address: str, channel: Channel) -> str:
            fault_line = FaultLine(address, channel, injector)
            opened.callback(fault_line.close)
            return fault_line.bootstrap

        words["BROKER"] = line(servers.kafka, "kafka")
        if "POSTGRES" in text:
            words["POSTGRES"] = line(servers.postgres.socket, "postgres")
            words["DATABASE"] = opened.enter_context(servers.postgres.database())
        if "OUT" in section:
            words["OUT"] = create_topic(servers.kafka, PARTITIONS)
        if "BUCKET" in section:
            words["BUCKET"] = servers.s3.bucket()
            env |= servers.s3.env
            env["AWS_ENDPOINT_URL"] = f"http://{line(f'127.0.0.1:{servers.s3.port}', 'http')}"
        if "CATALOG" in section:
            _, url = opened.enter_context(rest.serving(folder))
            words["CATALOG"] = f"http://{line(url.removeprefix('http://'), 'http')}"
            env["TOKEN"] = rest.TOKEN
        if name == "asking":
            words["REGISTRY"] = f"http://{line(servers.registry, 'http')}"
            words["SERVICE"] = f"http://{line(servers.service, 'http')}"
        work = folder / "work"
        work.mkdir()
        text = fill(text, words | {"WINDOW": HOURLY})
        (work / "things.yaml").write_text(text)
        age = (datetime.now(UTC) - parse_instant(SECOND)) // timedelta(minutes=1)
        (work / "aged.yaml").write_text(f"{text}maintain: {{keep_rows: {age - 30}m}}\n")
        (work / "schema.py").write_text(SCHEMA + NAMED)
        (work / "edit.py").write_text(EDIT)
        yield Place(work, env, words, topic.produced)


def fill(text: str, words: Mapping[str, str]) -> str:
    """Replaces words in capitals."""
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    return text
