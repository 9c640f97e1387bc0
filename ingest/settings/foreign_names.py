"""Names of Flink's connector and of Kafka Connect, and what takes the place of each here.

A setting of such a name is refused with this sentence, and FLINK.md and docs/connect.md have
the name (`tests/docs/test_foreign_names.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

Meaning = tuple[str | None, str]
"""The setting, command or figure that takes its place, or None; and a remark."""

FLINK: Mapping[str, Meaning] = {
    "connector": (None, "the source is Kafka, and sink.kind says what is written"),
    "topic-pattern": ("source.topic_pattern", "a pattern that the whole name must match"),
    "properties.bootstrap.servers": ("source.bootstrap_servers", "the same list"),
    "properties.group.id": (
        None,
        "consumers are assigned and commit nothing, so a group's name would mean nothing",
    ),
    "properties.isolation.level": ("source.isolation", "planning and reading use one level"),
    "properties.auto.offset.reset": (
        "source.on_loss",
        "the client's own reset would move in silence",
    ),
    "value.format": ("decode.format", "and its options stand beside it"),
    "key.format": ("decode.key.format", "and its options stand beside it"),
    "key.fields": ("decode.key.fields", "columns of the model"),
    "key.fields-prefix": ("decode.key.fields_prefix", "the same"),
    "value.fields-include": ("decode.fields_include", "`all` or `except_key`"),
    "scan.startup.mode": ("source.start", "it says where the first window begins"),
    "scan.startup.specific-offsets": (
        "source.start.offsets",
        "Flink's own text is understood there",
    ),
    "scan.startup.timestamp-millis": (
        "source.start.timestamp",
        "the same number is understood there",
    ),
    "earliest-offset": ("source.start: earliest", "a value of source.start"),
    "latest-offset": ("source.start: latest", "a value of source.start"),
    "group-offsets": (
        "source.start.committed",
        "`{committed: GROUP}` reads a group's offsets once",
    ),
    "specific-offsets": ("source.start.offsets", "`{offsets: {0: 42}}`"),
    "scan.bounded.mode": ("window.stop", "micro-batches end there"),
    "scan.bounded.specific-offsets": (
        "window.stop.offsets",
        "Flink's own text is understood there",
    ),
    "scan.bounded.timestamp-millis": (
        "window.stop.timestamp",
        "the same number is understood there",
    ),
    "scan.topic-partition-discovery.interval": (
        None,
        "nothing runs between windows; each boundary asks the cluster",
    ),
    "flink.partition-discovery.interval-millis": (
        None,
        "nothing runs between windows; each boundary asks the cluster",
    ),
    "partition.discovery.interval.ms": (
        None,
        "nothing runs between windows; each boundary asks the cluster",
    ),
    "scan.parallelism": ("source.split_records", "one Spark task reads each split"),
    "scan.watermark.alignment.group": (
        None,
        "all splits of a window end at one label, so none runs ahead",
    ),
    "scan.watermark.alignment.max-drift": (
        None,
        "all splits of a window end at one label, so none runs ahead",
    ),
    "scan.watermark.idle-timeout": (
        "window.idle",
        "which topic-partitions may be left out of a window's completeness",
    ),
    "sink.delivery-guarantee": (
        "sink.delivery_guarantee",
        "of a Kafka sink; tables are always written exactly once",
    ),
    "sink.semantic": (
        "sink.delivery_guarantee",
        "of a Kafka sink; tables are always written exactly once",
    ),
    "sink.transactional-id-prefix": (
        "sink.transactional_id_prefix",
        "of a Kafka sink; the pipeline's id stands behind it",
    ),
    "sink.transaction-naming-strategy": (
        "sink.transactional_id_pool",
        "of a Kafka sink: a bounded set of ids",
    ),
    "sink.partitioner": ("sink.partitioner", "of a Kafka sink"),
    "sink.parallelism": ("source.split_records", "the task that reads a split also stages it"),
    "sink.buffer-flush.max-rows": (
        "source.tuning.batch_messages",
        "what is decoded at once is bounded; a window decides what becomes visible",
    ),
    "sink.buffer-flush.interval": (
        "source.tuning.batch_bytes",
        "what is decoded at once is bounded; a window decides what becomes visible",
    ),
    "json.ignore-parse-errors": (
        "limits.max_dead_ratio",
        "a message that can't be a row is a dead letter, never dropped in silence",
    ),
    "json.fail-on-missing-field": (
        "decode.schema",
        "a column that isn't nullable makes such a message a dead letter",
    ),
    "json.timestamp-format.standard": (
        "decode.timestamps",
        "`iso-8601` or `sql`, as in Flink, or numbers",
    ),
    "json.map-null-key.mode": (
        None,
        "a key of JSON is never null, and what is written keeps its keys",
    ),
    "json.encode.decimal-as-plain-number": (
        None,
        "decimals are written with all digits, in the form of the sink's page",
    ),
    "json.encode.ignore-null-fields": (
        None,
        "a message of a Kafka sink has all its columns, so that its readers know them",
    ),
    "json.decode.json-parser.enabled": (
        None,
        "one compiled decoder reads all messages, and a strict one what it leaves",
    ),
    "avro-confluent.url": ("source.registry", "once for keys and values, also beside the cluster"),
    "avro-confluent.subject": (
        "decode.subject_name_strategy",
        "each message names its schema; subjects are asked only to plan",
    ),
    "avro-confluent.schema": (
        None,
        "each message is read by its own schema, into the model's columns",
    ),
    "avro-confluent.properties": (
        None,
        "the registry's settings are under source.registry, by name",
    ),
    "protobuf.message-class-name": (
        "decode.message",
        "the type's name in decode.descriptor; no Java class is needed",
    ),
    "protobuf.ignore-parse-errors": (
        "limits.max_dead_ratio",
        "a message that can't be a row is a dead letter, never dropped in silence",
    ),
    "protobuf.read-default-values": (
        None,
        "a proto3 field without presence has its default, as the specification says",
    ),
    "protobuf.write-null-string-literal": (None, "null stays null"),
    "setStartFromEarliest": ("source.start: earliest", "of the old FlinkKafkaConsumer"),
    "setStartFromLatest": ("source.start: latest", "of the old FlinkKafkaConsumer"),
    "setStartFromTimestamp": ("source.start.timestamp", "of the old FlinkKafkaConsumer"),
    "setStartFromGroupOffsets": (
        "source.start.committed",
        "of the old FlinkKafkaConsumer; a group is asked once",
    ),
    "setStartFromSpecificOffsets": ("source.start.offsets", "of the old FlinkKafkaConsumer"),
    "setCommitOffsetsOnCheckpoints": (
        "source.offsets_group",
        "after the table's commit, for tools that watch groups",
    ),
    "commit.offsets.on.checkpoint": (
        "source.offsets_group",
        "after the table's commit, for tools that watch groups",
    ),
    "setProperty": ("source.client", "librdkafka's properties, out of an allow-list"),
    "setLogFailuresOnly": (None, "a message that isn't acknowledged fails its window"),
    "setFlushOnCheckpoint": (None, "a window is committed only when all of it is acknowledged"),
    "FlinkFixedPartitioner": (
        "sink.partitioner",
        "of a Kafka sink: there is no subtask whose number could choose a partition",
    ),
    "pollTimeout": (
        None,
        "a task waits for librdkafka's queue, and source.tuning.stall_timeout bounds it",
    ),
    "WakeupException": (None, "nothing waits that another thread would have to wake"),
    "unassign": (None, "a consumer reads one split, and is closed or kept for the next one"),
    "pause": (None, "consumers aren't paused; windrow pause stops the windows of a pipeline"),
    "resume": (None, "consumers aren't paused; windrow resume ends a pipeline's pause"),
    "useMetrics": (None, "the client's own statistics aren't passed on"),
    "register.consumer.metrics": (None, "the client's own statistics aren't passed on"),
    "discoveryInterval": (None, "nothing runs between windows; each boundary asks the cluster"),
    "client.id.prefix": ("source.client", "`client.id` may be set there"),
    "recordSucceeded": ("windrow_rows_total", "a figure for Prometheus"),
    "FailedCommit": ("windrow_offset_commits_total", "a figure for Prometheus, by outcome"),
    "numBytesIn": (
        "windrow_bytes_in_total",
        "a figure for Prometheus, by topic-partition; receipts have the bytes, too",
    ),
    "factoryIdentifier": (
        "decode.format",
        "an entry point's name, of a plugin in Python: a distribution brings it",
    ),
    "META-INF/services": ("decode.format", "entry points of Python find plugins"),
    "requiredOptions": (None, "a section is a model whose fields without a default are required"),
    "optionalOptions": (None, "a section is a model whose fields with a default are optional"),
    "forwardOptions": (
        None,
        "an option that has no effect where it stands is a mistake, so none is passed on unseen",
    ),
    "validatePKConstraints": ("sink.primary_key", "the key's columns are checked with the spec"),
    "generateUid": (
        "id",
        "a pipeline's identity is written, so it survives each change of the file",
    ),
    "nested projection": ("decode.root", 'and `metadata={"path": ...}` of a column'),
    "forBoundedOutOfOrderness": (
        "window.event_delay",
        "a window is complete when event times are so far beyond its end",
    ),
    "WATERMARK FOR": (
        "window.event_time",
        "the column that says which messages are late; windows are cut by the broker's timestamps",
    ),
    "withIdleness": (
        "window.idle",
        "which topic-partitions may be left out of a window's completeness",
    ),
    "JsonNode": (
        "decode.format",
        "`string` keeps each document as a text, which a `sql` step takes apart",
    ),
    "ObjectNode": (
        "decode.format",
        "`string` keeps each document as a text, which a `sql` step takes apart",
    ),
    "TypeInformationSerializationSchema": (None, "Flink's own bytes are read by Flink alone"),
    "AddSplitEvent": (None, "splits are given to tasks once, and no event follows"),
    "SourceEventWrapper": (None, "enumerator and tasks don't talk while they work"),
    "WatermarkAlignmentEvent": (None, "all splits of a window end at one label"),
    "ReportedWatermarkEvent": (None, "completeness comes from frozen boundaries"),
    "RequestSplitEvent": (None, "Spark gives splits to free cores"),
    "NoMoreSplitsEvent": (None, "a window's plan has all its splits"),
    "SingleThreadMultiplexSourceReaderBase": (
        None,
        "a task reads one split with one thread, and librdkafka's fetches ahead",
    ),
    "SplitFetcher": (
        None,
        "a task reads one split with one thread, and librdkafka's fetches ahead",
    ),
    "SplitFetcherManager": (
        None,
        "a task reads one split with one thread, and librdkafka's fetches ahead",
    ),
    "readTextFile": (None, "files have no offsets, by which windows are cut"),
    "readFile": (None, "files have no offsets, by which windows are cut"),
    "writeAsText": ("sink.kind", "`files` with `format: csv` or JSON lines"),
    "fromCollection": ("windrow try", "rows of a file of lines, without a topic"),
    "fromElements": ("windrow try", "rows of a file of lines, without a topic"),
    "socketTextStream": (None, "what a socket has sent can't be read again"),
    "writeToSocket": (None, "what a socket has taken can't be committed with a receipt"),
    "Redis": (None, "its writes have no commit that could name a receipt"),
    "Flume": (None, "its writes have no commit that could name a receipt"),
}

CONNECT: Mapping[str, Meaning] = {
    "connector.class": (
        "sink.kind",
        "a pipeline is no class: the kind of sink says what is written",
    ),
    "tasks.max": (
        "source.split_records",
        "one Spark task reads each split, as many at a time as Spark has cores",
    ),
    "topics.regex": ("source.topic_pattern", "a table for each topic is `for_each`"),
    "key.converter": ("decode.key.format", "the format of the keys"),
    "value.converter": ("decode.format", "the format of the values"),
    "key.converter.schemas.enable": (
        "decode.key.schema_include",
        "the schema beside each key is obeyed",
    ),
    "value.converter.schemas.enable": (
        "decode.schema_include",
        "the schema beside each value is obeyed",
    ),
    "header.converter": ("decode.headers", "texts or bytes, by the column's type"),
    "transforms": ("transform.steps", "SQL, Python, lookups and Spark instead of chains of SMTs"),
    "predicates": ("transform.steps", "a WHERE of a `sql` step"),
    "errors.tolerance": ("limits.max_dead_ratio", "bad messages are dead letters, up to a limit"),
    "errors.deadletterqueue.topic.name": (
        "dead_letters.topic",
        "dead letters are in a table in any case, and may be published",
    ),
    "errors.deadletterqueue.topic.replication.factor": (
        None,
        "the topic of dead letters must be there: windrow makes no topics",
    ),
    "errors.deadletterqueue.context.headers.enable": (
        None,
        "dead letters always say where and why",
    ),
    "errors.retry.timeout": (
        "dagster.retries",
        "retries of a run; a message that can't be a row isn't tried again",
    ),
    "errors.log.enable": (None, "each dead letter has its reason in the table of dead letters"),
    "errors.log.include.messages": (None, "logs never hold messages"),
    "offset.flush.interval.ms": (
        None,
        "offsets are in the receipt, which is committed with the rows",
    ),
    "offset.storage.topic": ("state", "the ledger and the table's receipts hold them"),
    "config.storage.topic": (None, "a pipeline's configuration is its file"),
    "status.storage.topic": (None, "Dagster has the state of runs"),
    "plugin.path": (None, "plugins are Python distributions with entry points"),
    "poll": (
        None,
        "of a source task: windrow reads Kafka, and connectors bring other systems into topics",
    ),
    "commitRecord": (
        None,
        "of a source task: windrow reads Kafka, and connectors bring other systems into topics",
    ),
}


def foreign_meaning(name: str) -> str | None:
    """Returns what a name of Flink or Connect is here, in words; None if it is no such name."""
    for origin, meanings in (("Flink", FLINK), ("Connect", CONNECT)):
        if name in meanings:
            instead, remark = meanings[name]
            here = "it has no counterpart here" if instead is None else f"here it is {instead}"
            return f"a name of {origin}'s: {here} ({remark})"
    return None
