"""The file of `df.write.format("windrow-kafka")`.

It has the writer's id, and a pipeline's `sink` section for the topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from windrow.ingest.config.pipeline import PipelineId
from windrow.ingest.config.settings_file import client_mistakes, refusal, text_of, validated
from windrow.ingest.model.metadata_columns import ALWAYS
from windrow.ingest.settings.document import Document, Mistake, SettingPath, read_document
from windrow.ingest.settings.values import Section, section_of
from windrow.ingest.sinks.kinds import KafkaOfItsKind, sink_kind

if TYPE_CHECKING:
    import pyarrow as pa

    from windrow.ingest.ports.sink import Sink

_FIXED: Mapping[str, Any] = {"kind": "kafka", "atomic_window": True, "timestamp": "published"}
"""Settings of a write that the file may leave out."""

METADATA = dict(
    zip(ALWAYS, ("windrow_id", "windrow_partition", "windrow_row", "windrow_batch"), strict=True)
)
"""The columns that each row gets.

They are the writer's id, the partition of the DataFrame, the row in it, and the batch: the origin
of its message (`ingest.sinks.kafka.origin`).
"""


class WriteSpec(Section):
    """The spec of a write."""

    id: PipelineId
    sink: KafkaOfItsKind = Field(description="The topics, as in a pipeline's spec.")

    @classmethod
    def conflicts(cls, written: Mapping[str, Any]) -> Iterator[tuple[SettingPath, str]]:
        """Refuses settings of a sink that a write doesn't support."""
        sink = section_of(written, "sink")
        if not sink:
            return
        if sink.get("atomic_window") is not True:
            yield (
                ("sink", "atomic_window"),
                (
                    "is always true here: a batch is one transaction, for Spark may cut its rows"
                    " another way next time"
                ),
            )
        if sink.get("delivery_guarantee", "exactly-once") != "exactly-once":
            yield (
                (
                    "sink",
                    "delivery_guarantee",
                ),
                "is always exactly-once here; for less, Spark has a Kafka sink of its own",
            )
        if sink.get("mode", "append") != "append":
            yield (
                (
                    "sink",
                    "mode",
                ),
                "must be append: the rows of a DataFrame have no order",
            )
        if sink.get("timestamp") == "message":
            yield (
                (
                    "sink",
                    "timestamp",
                ),
                "must be published or a column: no row of a DataFrame comes from one message",
            )
        if sink.get("partitioner") in {"fixed", "source"}:
            yield (
                ("sink", "partitioner"),
                (
                    "goes by the splits of a topic, and there are none: let the key choose, or a"
                    " function"
                ),
            )
        if sink.get("cluster") is not None:
            yield ("sink", "cluster"), "is for pipelines: write bootstrap_servers here"
        elif sink.get("bootstrap_servers") is None:
            yield ("sink", "bootstrap_servers"), "is missing"

    def table(self, folder: Path, rows: pa.Schema) -> Sink:
        """Makes the sink. `folder`: of relative paths; `rows`: the DataFrame's columns.

        Raises:
            SpecError: the columns have the name of one that each row gets, or the client
                properties can't be used.
        """
        return sink_kind(self.sink.kind).make(self.sink, rows, METADATA, folder)


def read_write_spec(path: Path) -> WriteSpec:
    """Loads the file of a write.

    Raises:
        SpecError: it can't be read, or is wrong: then with all its mistakes, each with
            its line and dotted name.
    """
    do = "Give its path as the option spec."
    document = read_document(text_of(path, f"The file {path} of the write", do), envelope=False)
    spec, wrong = _checked(document)
    mistakes = [*document.mistakes, *(m for m in wrong if not document.failed(m.path))]
    if mistakes or spec is None:
        raise refusal(str(path), mistakes, document)
    return spec


def _checked(document: Document) -> tuple[WriteSpec | None, list[Mistake]]:
    written = document.attributes
    if not isinstance(written, Mapping):
        return None, [Mistake((), "a write's file is a mapping with id and sink")]
    sink = section_of(written, "sink")
    values = {**written, "sink": {**_FIXED, **sink}} if sink else written
    spec, found = validated(WriteSpec, values)
    return spec, [*client_mistakes({"client": sink.get("client")}, ("sink",)), *found]
