"""Dead-letter replay: decodes the dead letters of a committed window again.

The current decoder and rules are used. The rows that the dead letters become are added to
the window.

    look -> dead letters of the committed attempt -> (edit) -> decode -> transform ->
    stage -> commit the remaining dead letters -> commit the rows and the receipt

The result is the window's next generation. Its existing rows stay, and the new receipt
counts both all rows and the remaining dead letters. The remaining dead letters are staged
again under the replay's attempt, and readers see only the dead letters of the receipt's
attempt. So the one commit of rows and receipt moves a message from the dead letters to the
table. If the replay is killed before that commit, nothing has changed. After it, the replay
is complete.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from windrow.ingest.admin.chosen_dead_letters import Chosen, dead_letters_of, messages_of
from windrow.ingest.admin.edit_function import Edit, Mask, apply_edits
from windrow.ingest.admin.verify_contents import SplitFinder, differences, sum_by_split
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.model.instants import in_utc
from windrow.ingest.model.lookup import LookedUp, merge_parts
from windrow.ingest.model.metadata_columns import DEFAULT
from windrow.ingest.model.plan import Split, Window
from windrow.ingest.model.receipt import (
    Checksums,
    Committed,
    Counts,
    DeadReplay,
    Receipt,
    SplitCounts,
    Staged,
    Staging,
)
from windrow.ingest.model.refusal_summary import Refusals, RefusedAt
from windrow.ingest.ports.dead_letters import REASONS
from windrow.ingest.ports.decoder import Decode, Decoded, checked_verdict
from windrow.ingest.ports.lookup import pinned
from windrow.ingest.ports.sink import StagerFactory
from windrow.ingest.runner.accounting import (
    SHOWN,
    refuse_expired,
    refuse_unequal,
    refuse_unplaced,
)
from windrow.ingest.runner.attempts import make_late_bins, pins_now
from windrow.ingest.runner.context import Pipeline, written_by
from windrow.ingest.runner.message_times import LateBins, MessageTimes
from windrow.ingest.runner.ownership import (
    bind_table,
    refuse_foreign_table,
    refuse_missing_event_time,
    refuse_paused,
)
from windrow.ingest.runner.poison_pills import POISON_PILL
from windrow.ingest.runner.run_windows import commit
from windrow.ingest.runner.task import IgnoredFields, stage_rows
from windrow.ingest.runner.writer_schemas import decoder_for
from windrow.ingest.schema.checksum import checksum_text

TRIES = 5
"""The maximum number of attempts of a replay, if other commits of its window come first."""


class DeadReplayResult(msgspec.Struct, frozen=True):
    """The result of a dead-letter replay of one window.

    Attributes:
        window: the window's key.
        open: the number of dead letters before the replay.
        tried: the number of chosen dead letters, without those for which the edit returned
            None.
        messages: the number of these that were accepted.
        rows: the number of rows that they became. Accepted messages may also be filtered or
            dropped.
        edited: the number of accepted messages that differ from the log.
        refused: the reasons why the others were refused again.
        committed: the window's receipt. After a dry run, or if no message was accepted, it
            is the previous one.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
        request = windrow.DeadReplayRequest("after the fix")
        result = windrow.replay_dead_letters(pipeline, window, request)
        for refused in result.refused:
            print(refused.count, "were refused again in the stage", refused.stage)
    """

    window: str
    open: int
    tried: int
    messages: int
    rows: int
    edited: int
    refused: tuple[RefusedAt, ...]
    committed: Committed


@dataclass(frozen=True)
class DeadReplayRequest:
    """A request for a dead-letter replay.

    Attributes:
        id: the id of the request.
        chosen: the chosen dead letters.
        edit: a function that edits the messages first.
        dry_run: only count the messages that would be accepted.
        anyway: replay even if the pipeline is paused.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
        request = windrow.DeadReplayRequest("after the fix", dry_run=True)
        result = windrow.replay_dead_letters(pipeline, window, request)
        print(result.messages, "of", result.tried, "would be accepted")
    """

    id: str
    chosen: Chosen = field(default_factory=Chosen)
    edit: Edit | None = None
    dry_run: bool = False
    anyway: bool = False


def replay_dead_letters(
    pipeline: Pipeline, window: Window, request: DeadReplayRequest
) -> DeadReplayResult:
    """Adds the chosen dead letters to the table, exactly once, if they are accepted now.

    Raises:
        RefusedError: the window isn't committed, or its rows have expired; or its dead letters
            aren't those that its receipt counts.
        SpecError: the sink takes no second generation; the edit failed, or returned no
            message.
        UnreachableError: the table or the ledger doesn't answer. The dead letters can be
            replayed again.

    Example:
        import windrow

        spec = windrow.load_spec("payments/defs.yaml")
        pipeline = windrow.open_pipeline(spec)
        (window,) = windrow.windows_named(spec, "2026-01-05T09:00:00Z")
        request = windrow.DeadReplayRequest("after the fix")
        result = windrow.replay_dead_letters(pipeline, window, request)
        print(result.messages, "of", result.open, "dead letters were accepted")
    """
    _refuse_unsupported(pipeline)
    anyway = request.anyway or request.dry_run
    refuse_paused(pipeline.ledger, pipeline.spec.id, anyway=anyway)
    refuse_foreign_table(pipeline)
    refuse_missing_event_time(pipeline)
    for _ in range(TRIES):
        committed = pipeline.sink.look(window)
        if committed is None:
            raise RefusedError(
                f"Window {window.key} isn't committed, so it has no dead letters to replay",
                "plan",
                "Run it: its messages are read from the topic, with today's schema.",
            )
        refuse_expired(committed.receipt)
        if not request.dry_run:  # a run may have died before it recorded its receipt
            pipeline.ledger.record(committed.receipt, pipeline.sink.receipt_text(committed.receipt))
        if not request.chosen.may_be_in(committed.receipt):
            return _result(committed, Counter(open=committed.receipt.counts.dead), ())
        result = _replay(pipeline, committed, request)
        if result is not None:
            return result
    raise UnreachableError(
        f"The dead letters of window {window.key} were not replayed: in each of {TRIES} attempts,"
        " another run committed the window first",
        "commit",
        "Nothing was committed by this run. Replay its dead letters again.",
    )


def _refuse_unsupported(pipeline: Pipeline) -> None:
    capabilities = pipeline.sink.capabilities
    if not capabilities.replaces:
        raise SpecError(
            f"Dead letters of {pipeline.spec.id} can't be replayed: its table takes no second"
            " generation of a window",
            "plan",
            "Nothing was read. Fix the schema, and write the messages to the topic again.",
        )
    if pipeline.dataframe_transform is not None:
        raise SpecError(
            f"Dead letters of {pipeline.spec.id} can't be replayed:"
            f" {pipeline.dataframe_transform.function} takes all rows of a window together",
            "plan",
            "Nothing was read. Fix the schema, and replay the window.",
        )


def _replay(
    pipeline: Pipeline, committed: Committed, request: DeadReplayRequest
) -> DeadReplayResult | None:
    """Makes one attempt to commit the next generation; None if another commit came first."""
    began, previous_receipt, attempt = time.monotonic(), committed.receipt, uuid.uuid4().hex
    _refuse_changed(pipeline, previous_receipt)
    work = _Attempt(pipeline, previous_receipt, request, attempt)
    try:
        work.read()
        staged = work.finish()
    except BaseException:
        work.discard()
        raise
    refuse_unequal(previous_receipt.plan, staged)
    if request.dry_run or not work.outcome_counts["messages"]:
        return _result(committed, work.outcome_counts, work.refusals.by_stage())
    receipt = _receipt(pipeline, previous_receipt, staged, work, time.monotonic() - began)
    crash_point("dead.before")
    pipeline.dead_letters.commit(receipt.plan, attempt, staged)
    committed = commit(pipeline, receipt, staged).committed
    return (
        _result(committed, work.outcome_counts, work.refusals.by_stage())
        if committed.receipt.attempt == attempt
        else None
    )


def _result(
    committed: Committed, counted: Counter[str], refused: tuple[RefusedAt, ...]
) -> DeadReplayResult:
    numbers = {name: counted[name] for name in ("open", "tried", "messages", "rows", "edited")}
    return DeadReplayResult(
        committed.receipt.window.key, refused=refused, committed=committed, **numbers
    )


def _refuse_changed(pipeline: Pipeline, receipt: Receipt) -> None:
    """Refuses dead letters that differ from the receipt, because some are lost, doubled or changed.

    Raises:
        RefusedError: they differ, and the message names the split; or they are expired.
    """
    if pipeline.dead_letters.is_expired(receipt.window, receipt.attempt):
        raise RefusedError(
            f"The dead letters of window {receipt.window.key} are older than"
            " maintain.keep_dead_letters and were removed",
            "check",
            "Nothing was replayed. windrow replay reads the window's messages again, if the topic"
            " still has them.",
        )
    dead_letters = dead_letters_of(pipeline.dead_letters, receipt.window, receipt.attempt)
    problems, _ = differences(
        receipt, "dead letters", sum_by_split(receipt.splits, dead_letters, DEFAULT)
    )
    if problems:
        raise RefusedError(
            f"The dead letters of window {receipt.window.key} are not those of its receipt:"
            f" {problems[0]}",
            "check",
            "Nothing was replayed: windrow verify SPEC --deep shows all differences. Restore the"
            " dead-letter table from a backup.",
        )


def _receipt(
    pipeline: Pipeline,
    previous_receipt: Receipt,
    staged: Sequence[Staged],
    work: _Attempt,
    seconds: float,
) -> Receipt:
    """Returns the receipt of the previous generation with the new counts."""
    splits = tuple(s.counts for s in staged)
    last = previous_receipt.dead_replay or DeadReplay(
        previous_receipt.attempt, previous_receipt.attempt, 0
    )
    counted = work.outcome_counts
    dead_replay = DeadReplay(
        previous_receipt.attempt,
        last.read_by,
        last.messages + counted["messages"],
        last.edited + counted["edited"],
        work.pins,
    )
    return msgspec.structs.replace(
        previous_receipt,
        generation=previous_receipt.generation + 1,
        attempt=work.attempt,
        request=work.request.id,
        ledger=pipeline.ledger.identity(),
        counts=Counts.total(splits),
        splits=splits,
        schema=pipeline.columns().described(),
        code=written_by(),
        staged_at=pipeline.now(),
        seconds=round(seconds, 3),
        dead_replay=dead_replay,
    )


class _Attempt:
    """Stages each of the window's dead letters as rows, or as a dead letter again.

    It has one batch in memory, in addition to the stagers' buffers.

    Attributes:
        request: the request.
        attempt: the id of the attempt.
        outcome_counts: `open`, `tried`, `messages`, `rows` and `edited` as in
            `DeadReplayResult`.
        refusals: the messages that were tried and refused again.
        pins: the versions that its lookups ask. They are the newest ones, because a missing
            key may exist by now.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        previous_receipt: Receipt,
        request: DeadReplayRequest,
        attempt: str,
    ) -> None:
        self.request, self.attempt = request, attempt
        self.outcome_counts: Counter[str] = Counter()
        self.refusals = Refusals()
        self._previous_receipt, self._store = previous_receipt, pipeline.dead_letters
        if request.dry_run:
            rows: StagerFactory = _CountingStager
            dead: StagerFactory = _CountingStager
        else:
            pipeline.sink.prepare(pipeline.owner())
            pipeline.dead_letters.prepare(pipeline.owner())
            bind_table(pipeline)
            stager_arguments = (previous_receipt.plan, previous_receipt.generation + 1, attempt)
            rows, dead = (
                pipeline.sink.stager(*stager_arguments),
                pipeline.dead_letters.stager(*stager_arguments),
            )
        decoder = decoder_for(
            pipeline, sorted({split.topic for split in previous_receipt.plan.splits})
        )
        self.pins = pins_now(pipeline.lookups())
        versions = {pin.lookup: pin.version for pin in self.pins}
        decode = pinned(decoder, versions).open()
        transform = pinned(pipeline.transform(), versions).open()
        self._decode: Decode = lambda messages: transform(
            checked_verdict(decoder, decode(messages)), messages
        )
        self._keyed = pipeline.sink.capabilities.mode != "append"
        bins = make_late_bins(pipeline, previous_receipt.window)
        if bins is not None and bins.event_time != previous_receipt.event_time:
            bins = None  # the receipt's counts are by other times, and stay as they are
        self._splits = [
            _SplitStaging(split, counts, rows, dead, bins)
            for split, counts in zip(
                previous_receipt.plan.splits, previous_receipt.splits, strict=True
            )
        ]

    @in_utc()
    def read(self) -> None:
        """Reads and stages all dead letters of the committed attempt, split by split."""
        finder = SplitFinder(self._previous_receipt.splits)
        for dead_letters in dead_letters_of(
            self._store, self._previous_receipt.window, self._previous_receipt.attempt
        ):
            split_numbers = finder.find_splits(
                *(dead_letters[DEFAULT[name]] for name in ("topic", "partition", "offset"))
            )
            for number in np.unique(split_numbers).tolist():
                self._take(
                    self._splits[number], dead_letters.filter(pa.array(split_numbers == number))
                )
                crash_point("write.middle")

    def _take(self, work: _SplitStaging, dead_letters: pa.RecordBatch) -> None:
        self.outcome_counts["open"] += dead_letters.num_rows
        chosen_mask = self.request.chosen.mask(dead_letters)
        work.keep(dead_letters.filter(pa.array(~chosen_mask)))
        dead_letters = dead_letters.filter(pa.array(chosen_mask))
        if not dead_letters.num_rows:
            return
        messages, tried, edited = (
            messages_of(dead_letters),
            np.ones(dead_letters.num_rows, bool),
            np.zeros(dead_letters.num_rows, bool),
        )
        if self.request.edit is not None:
            messages, tried, edited = apply_edits(dead_letters, messages, self.request.edit)
        poisonous = pc.equal(dead_letters["reason"], POISON_PILL).to_numpy(zero_copy_only=False)
        tried &= edited | ~poisonous  # unedited, it would kill this process
        work.keep(dead_letters.filter(pa.array(~tried)))
        dead_letters, messages, edited = (
            dead_letters.filter(pa.array(tried)),
            messages.filter(pa.array(tried)),
            edited[tried],
        )
        if dead_letters.num_rows:
            self._replay(work, dead_letters, messages, edited)

    def _replay(
        self,
        work: _SplitStaging,
        dead_letters: pa.RecordBatch,
        messages: pa.RecordBatch,
        edited: Mask,
    ) -> None:
        decoded = self._decode(messages)
        refuse_unplaced(work.split, messages, decoded, keyed=self._keyed)
        decoded = work.stage(decoded, messages, keyed=self._keyed)
        refused_letters = dead_letters.take(decoded.dead_index)
        self.refusals.add(
            decoded.dead_stage.to_pylist(),
            decoded.dead_reason.to_pylist(),
            decoded.dead_detail.to_pylist(),
            refused_letters["_offset"].to_pylist(),
        )
        work.keep(refused_letters)
        work.count(decoded, messages)
        accepted = np.ones(dead_letters.num_rows, bool)
        accepted[decoded.dead_index.to_numpy()] = False
        self.outcome_counts.update(
            tried=dead_letters.num_rows,
            messages=int(accepted.sum()),
            rows=decoded.rows.num_rows,
            edited=int((accepted & edited).sum()),
        )

    def finish(self) -> list[Staged]:
        """Closes the stagers; returns the staged files and counts, one entry per split."""
        staged = [work.finish() for work in self._splits]
        crash_point("write.after")
        return staged

    def discard(self) -> None:
        """Closes the stagers after a failure. A later sweep removes the staged files."""
        for work in self._splits:
            work.discard()


class _SplitStaging:
    """Stages one split's dead letters, and counts them."""

    def __init__(
        self,
        split: Split,
        previous_counts: SplitCounts,
        rows: StagerFactory,
        dead: StagerFactory,
        bins: LateBins | None,
    ) -> None:
        self.split = split
        self._times = None if bins is None else MessageTimes.from_counts(previous_counts, bins)
        self._previous_counts, self._rows, self._dead = previous_counts, rows(split), dead(split)
        self._verdicts: Counter[str] = Counter()
        self._lookups: tuple[LookedUp, ...] = ()
        self._ignored = IgnoredFields(
            previous_counts.ignored, Counter(dict(previous_counts.ignored_fields))
        )
        self._reasons: Counter[str] = Counter()
        self._first: list[tuple[int, str]] = []

    def keep(self, dead_letters: pa.RecordBatch) -> None:
        """Stages dead letters as dead letters again."""
        if not dead_letters.num_rows:
            return
        reasons = dead_letters["reason"].to_pylist()
        self._reasons.update(reasons)
        self._first += zip(
            dead_letters["_offset"].slice(0, SHOWN).to_pylist(), reasons[:SHOWN], strict=True
        )
        self._verdicts["dead"] += dead_letters.num_rows
        self._dead.add(dead_letters.select(REASONS.names), messages_of(dead_letters))

    def stage(self, decoded: Decoded, messages: pa.RecordBatch, *, keyed: bool) -> Decoded:
        """Stages accepted rows as a run does. Rows that the table can't hold become dead again."""
        return stage_rows(self._rows, messages, decoded, keyed=keyed) if decoded.valid else decoded

    def count(self, decoded: Decoded, messages: pa.RecordBatch) -> None:
        deletes = 0 if decoded.deletes is None else len(decoded.deletes.index)
        counted = {
            "valid": decoded.valid,
            "rows": decoded.rows.num_rows,
            "dropped": decoded.dropped,
            "filtered": decoded.filtered,
            "truncated": decoded.truncated,
        }
        self._verdicts.update(counted, deletes=deletes)
        self._lookups = merge_parts([*self._lookups, *decoded.lookups])
        self._ignored.add(messages, decoded)
        if self._times is not None:
            self._times.recount_accepted(messages, decoded)

    def finish(self) -> Staged:
        """Closes both stagers; returns the staged files, and the split's new counts."""
        rows, dead, previous_counts, new_counts = (
            self._rows.finish(),
            self._dead.finish(),
            self._previous_counts,
            self._verdicts,
        )
        counts = msgspec.structs.replace(
            previous_counts,
            valid=previous_counts.valid + new_counts["valid"],
            rows=previous_counts.rows + new_counts["rows"],
            dead=new_counts["dead"],
            dropped=previous_counts.dropped + new_counts["dropped"],
            filtered=previous_counts.filtered + new_counts["filtered"],
            truncated=previous_counts.truncated + new_counts["truncated"],
            deletes=previous_counts.deletes + new_counts["deletes"],
            lookups=merge_parts([*previous_counts.lookups, *self._lookups]),
            ignored=self._ignored.messages,
            ignored_fields=tuple(self._ignored.fields.items()),
            rows_staged=previous_counts.rows_staged + rows.rows,
            dead_staged=dead.rows,
            reasons=tuple(sorted(self._reasons.items())),
            first_dead=tuple(sorted(self._first)[:SHOWN]),
            checksums=Checksums(
                checksum_text(int(previous_counts.checksums.rows, 16) + int(rows.checksum, 16)),
                dead.checksum,
            ),
            **({} if self._times is None else self._times.figures()),
        )
        return Staged(self.split, counts, rows.committables, dead.committables)

    def discard(self) -> None:
        self._rows.discard()
        self._dead.discard()


class _CountingStager:
    """The stager of a dry run. It counts rows and writes nothing."""

    def __init__(self, split: Split) -> None:
        del split
        self._rows = 0

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        del messages
        self._rows += rows.num_rows

    def finish(self) -> Staging:
        return Staging(self._rows)

    def discard(self) -> None:
        """Removes nothing, because no file was written."""
