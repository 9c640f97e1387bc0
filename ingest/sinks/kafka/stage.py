"""Staged messages: an Arrow file per split with its messages, ready to be published.

No other attempt uses the same file name. This code runs on executors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from windrow.ingest.errors import RefusedError
from windrow.ingest.model.plan import Split, Window
from windrow.ingest.schema.checksum import checksums
from windrow.ingest.sinks.kafka.encoder import MessageEncoder
from windrow.ingest.sinks.kafka.partitioners import PARTITION, PartitionFunction
from windrow.ingest.sinks.kit import (
    FileStager,
    GrowingFile,
    Place,
    RowLayout,
    StagedFiles,
    checksum,
    checksum_text,
    staged_path,
    window_folder,
)

FOLDER = "staged"


class StagedMessages(msgspec.Struct, frozen=True):
    """Description of a staged file: the sink's committable.

    Attributes:
        path: path of the file, relative to the staging place.
        size: size in bytes.
        rows: number of messages.
        same: checksum of the columns that all attempts at the same rows share.
        full_checksum: checksum of all columns.
    """

    path: str
    size: int
    rows: int
    same: str
    full_checksum: str = msgspec.field(name="whole")


class ArrowWriter:
    """Writes messages in Arrow's file format, and computes their checksums."""

    def __init__(self, schema: pa.Schema, attempt_columns: Sequence[str]) -> None:
        """Writes nothing yet.

        Args:
            schema: the schema of the messages.
            attempt_columns: the columns that may differ between two attempts at the same rows.
        """
        self._schema = schema
        self._attempt_columns = attempt_columns
        self.same = self._full_checksum = 0
        self._writer: pa.ipc.RecordBatchFileWriter

    def begin(self, out: pa.NativeFile) -> None:
        self._writer = pa.ipc.new_file(out, self._schema)

    def write(self, rows: pa.Table) -> None:
        for batch in rows.to_batches():
            self._writer.write_batch(batch)
            same, full_checksum = checksums(batch, self._attempt_columns)
            self.same, self._full_checksum = self.same + same, self._full_checksum + full_checksum

    def end(self) -> None:
        self._writer.close()

    def describe(self, path: str, size: int, rows: int) -> StagedMessages:
        return StagedMessages(
            path, size, rows, checksum_text(self.same), checksum_text(self._full_checksum)
        )


class KafkaStager(FileStager[StagedMessages]):
    """Stages the messages of rows. It holds one batch in memory."""

    done = "published"

    def __init__(self, made_by: KafkaStagerFactory, split: Split) -> None:
        path = staged_path(
            window_folder(made_by.window.key, FOLDER), made_by.layout.attempt, "arrow"
        )
        arrow = ArrowWriter(made_by.schema, made_by.encoder.attempt_columns)
        staging = made_by.encoder.options.staging
        file = GrowingFile(Place(staging), path, arrow, grouped=False, durable=False)
        super().__init__(staging, made_by.layout, split, file)
        self._encoder, self._function = made_by.encoder, made_by.function
        self._window = made_by.window

    def _in_file(self, batch: pa.RecordBatch, messages: pa.RecordBatch) -> pa.RecordBatch:
        batch = batch.append_column(
            self._layout.metadata["window"], pa.repeat(self._window.key, batch.num_rows)
        )
        misfit = self._encoder.find_misfit(batch)
        if misfit is not None:
            rows, message = misfit
            advice = (
                "Nothing was published. Change such values by a transform, or leave the column out;"
                " then run the window again."
            )
            raise self._unstorable(message, advice, messages, rows.tolist())
        untimed = self._encoder.find_untimed(batch, messages)
        if untimed:
            time = self._encoder.options.time
            time_source = "the message" if time == "message" else f"column {time}"
            message = (
                f"the time of {time_source} isn't after 1970-01-01T00:00:00Z: no message can be"
                " published with it"
            )
            advice = (
                "Nothing was published. Refuse such rows by a rule, or set sink.timestamp:"
                " published; then run the window again."
            )
            raise self._unstorable(message, advice, messages, untimed)
        encoded = self._encoder.encode(batch, messages, self._window)
        misrouted = self._encoder.find_misrouted(encoded)
        if misrouted:
            advice = (
                "Nothing was published. Add the topic, or refuse such rows by a rule; then run the"
                " window again."
            )
            # The column's value isn't in the message, because it may be secret.
            raise self._unstorable(
                f"column {self._encoder.options.topic_column} names none of sink.topics",
                advice,
                messages,
                misrouted,
            )
        return (
            encoded
            if self._function is None
            else self._function.with_partitions(encoded, batch, messages["offset"], self._split)
        )


class KafkaStagerFactory(msgspec.Struct, frozen=True):
    """Makes stagers. Picklable.

    Attributes:
        layout: the columns of rows.
        encoder: makes messages from rows.
        window: the window.
        function: chooses partitions; None: they are chosen when messages are published.
    """

    layout: RowLayout
    encoder: MessageEncoder
    window: Window
    function: PartitionFunction | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns of a staged file."""
        return (
            self.encoder.schema
            if self.function is None
            else self.encoder.schema.append(pa.field(PARTITION, pa.int32()))
        )

    def __call__(self, split: Split) -> KafkaStager:
        """Makes a stager, with a file name that no other stager has."""
        return KafkaStager(self, split)


class StagedMessageFiles(StagedFiles[StagedMessages]):
    """Staged files of a table, for the driver.

    Args:
        staging: the place of the files.
    """

    do_if_gone = "Probably a sweep removed them. Nothing more was published; run the window again."

    def __init__(self, staging: str) -> None:
        super().__init__(staging, (FOLDER,), StagedMessages, consumed=True)

    def batches(self, file: StagedMessages) -> Iterator[pa.RecordBatch]:
        """Yields the messages of a file, in order.

        Files are staged without an fsync, so their checksum is compared here.

        Raises:
            RefusedError: the file is missing or damaged. The error is raised after the last
                batch at the latest.
        """
        full_checksum = 0
        try:
            with (
                self.folder.filesystem().open_input_file(file.path) as source,
                pa.ipc.open_file(source) as reader,
            ):
                for number in range(reader.num_record_batches):
                    batch = reader.get_batch(number)
                    # Compiled code relies on the offsets of a batch.
                    batch.validate(full=True)
                    full_checksum += checksum(batch)
                    yield batch
        except (OSError, pa.ArrowException) as error:
            raise self._unusable(file, f"can't be read: {type(error).__name__}") from error
        if checksum_text(full_checksum) != file.full_checksum:
            raise self._unusable(file, "is damaged: it isn't what was written")

    def _unusable(self, file: StagedMessages, reason: str) -> RefusedError:
        return RefusedError(
            f"the staged file {self.uri}/{file.path} {reason}",
            "commit",
            "Run the window again: it publishes only the splits that aren't published yet.",
        )
