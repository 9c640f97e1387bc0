"""Dead-letter replay: a committed window's dead letters go through today's decoder and rules
again, and what becomes rows joins the window.

    look -> dead letters of the attempt that counts -> (edit) -> decode -> transform ->
    stage -> commit what stays dead -> commit

It is the window's next generation: the rows that are there stay, and the receipt
says what is in the table and what is dead after it. The dead letters that stay are
staged anew under the replay's attempt; readers see those of the receipt's attempt
alone. So the one commit of rows and receipt takes a message from one side to the other.
Killed anywhere before it, nothing has changed; behind it, all has.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from windrow.ingest.admin.dead_letters import Chosen, letters_of, messages_of
from windrow.ingest.admin.deep import Places, differences, summed
from windrow.ingest.admin.edit import Edit, Mask, with_edits
from windrow.ingest.crashpoints import crash_point
from windrow.ingest.errors import RefusedError, SpecError, UnreachableError
from windrow.ingest.model.metadata import DEFAULT
from windrow.ingest.model.plan import Split
from windrow.ingest.model.receipt import (
    Checksums,
    Committed,
    Counts,
    DeadReplay,
    Receipt,
    SplitCounts,
)
from windrow.ingest.model.refusals import Refusals, RefusedAt
from windrow.ingest.model.staged import Staged, Staging
from windrow.ingest.model.window import Window
from windrow.ingest.ports.dead_letters import REASONS
from windrow.ingest.ports.decoder import Decode, Decoded
from windrow.ingest.ports.sink import Stager, StagerFactory
from windrow.ingest.runner.accounting import SHOWN, refuse_unequal, refuse_unplaced
from windrow.ingest.runner.context import Pipeline, written_by
from windrow.ingest.runner.ownership import bind_table, refuse_wrong_place
from windrow.ingest.runner.pipeline import commit
from windrow.ingest.runner.schemas import decoder_for
from windrow.ingest.runner.task import stage_rows
from windrow.ingest.schema.checksum import text

TRIES = 5
"""How often a replay begins anew because another commit of its window came first."""


class DeadReplayResult(msgspec.Struct, frozen=True):
    """What a dead-letter replay did to a window, or would do.

    `open` dead letters were there, `tried` of them were chosen and not left alone by
    the edit; `messages` were accepted, which became `rows` (or were filtered, or
    dropped); `edited` of these are not as they are in the log. `refused`: of the others
    that were tried, what was wrong with them today. `committed`: the window's receipt;
    of a dry run, and where nothing was accepted, the one before.
    """

    window: str
    open: int
    tried: int
    messages: int
    rows: int
    edited: int
    refused: tuple[RefusedAt, ...]
    committed: Committed


class DeadReplayRequest(msgspec.Struct, frozen=True):
    """Who asks (`id`), for which dead letters, and what repairs them first.

    `dry_run`: only see what would be accepted.
    """

    id: str
    chosen: Chosen = Chosen()
    edit: Edit | None = None
    dry_run: bool = False


def replay_dead_letters(
    pipeline: Pipeline, window: Window, request: DeadReplayRequest
) -> DeadReplayResult:
    """Have the window's chosen dead letters that today's decoder and rules take in the
    table, exactly once.

    Raises:
        RefusedError: the window isn't committed; its dead letters are not those that
            its receipt counts.
        SpecError: the sink takes no second generation; the edit failed, or returned no
            message.
        UnreachableError: table or ledger; replay its dead letters again.
    """
    _refuse_no_replay(pipeline)
    refuse_wrong_place(pipeline)
    for _ in range(TRIES):
        found = pipeline.sink.look(window)
        if found is None:
            do = "Run it: its messages are read from the topic, with today's schema."
            raise RefusedError(
                f"Window {window.key} isn't committed, so it has no dead letters to replay",
                "plan",
                do,
            )
        if not request.dry_run:  # one that died after its commit may not have said so to the ledger
            pipeline.ledger.record(found.receipt, pipeline.sink.receipt_text(found.receipt))
        if not request.chosen.may_be_in(found.receipt):
            return _result(found, Counter(open=found.receipt.counts.dead), ())
        result = _try(pipeline, found, request)
        if result is not None:
            return result
    what = (
        f"Window {window.key} was committed anew by others each of {TRIES} times that its dead"
        " letters were to be replayed"
    )
    raise UnreachableError(
        what, "commit", "Nothing was committed by this run. Replay its dead letters again."
    )


def _refuse_no_replay(pipeline: Pipeline) -> None:
    capabilities = pipeline.sink.capabilities
    if not capabilities.replaces:
        what = (
            f"Dead letters of {pipeline.spec.id} can't be replayed: its table takes no second"
            " generation of a window"
        )
        raise SpecError(
            what,
            "plan",
            "Nothing was read. Fix the schema, and write the messages to the topic again.",
        )
    if pipeline.reshape is not None:
        what = (
            f"Dead letters of {pipeline.spec.id} can't be replayed: its rows go through"
            f" {pipeline.reshape.function}, a window's together"
        )
        raise SpecError(what, "plan", "Nothing was read. Fix the schema, and replay the window.")


def _try(
    pipeline: Pipeline, found: Committed, request: DeadReplayRequest
) -> DeadReplayResult | None:
    """One attempt on the generation that was found; None if another commit of the
    window came first.
    """
    began, before, attempt = time.monotonic(), found.receipt, uuid.uuid4().hex
    _refuse_other_letters(pipeline, before)
    work = _Work(pipeline, before, request, attempt)
    try:
        work.read()
        staged = work.finish()
    except BaseException:
        work.discard()
        raise
    refuse_unequal(before.plan, staged)
    if request.dry_run or not work.counted["messages"]:
        return _result(found, work.counted, work.refusals.by_stage())
    receipt = _receipt(pipeline, before, staged, work, time.monotonic() - began)
    crash_point("dead.before")
    pipeline.dead_letters.commit(receipt.plan, attempt, staged)
    committed = commit(pipeline, receipt, staged).committed
    return (
        _result(committed, work.counted, work.refusals.by_stage())
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


def _refuse_other_letters(pipeline: Pipeline, receipt: Receipt) -> None:
    """What is replayed must be what was refused: each letter once, and none changed.

    Raises:
        RefusedError: says which split's letters are others.
    """
    letters = letters_of(pipeline.dead_letters, receipt.window, receipt.attempt)
    problems, _ = differences(receipt, "dead letters", summed(receipt.splits, letters, DEFAULT))
    if problems:
        what = (
            f"The dead letters of window {receipt.window.key} are not those of its receipt:"
            f" {problems[0]}"
        )
        raise RefusedError(
            what,
            "check",
            "Nothing was replayed: windrow verify --deep shows all of it. Restore their table from"
            " a backup.",
        )


def _receipt(
    pipeline: Pipeline, before: Receipt, staged: Sequence[Staged], work: _Work, seconds: float
) -> Receipt:
    """The receipt before, with what is different now."""
    splits = tuple(s.counts for s in staged)
    last = before.dead_replay or DeadReplay(before.attempt, before.attempt, 0)
    counted = work.counted
    dead_replay = DeadReplay(
        before.attempt,
        last.read_by,
        last.messages + counted["messages"],
        last.edited + counted["edited"],
    )
    return msgspec.structs.replace(
        before,
        generation=before.generation + 1,
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


class _Work:
    """One attempt: stages each of the window's dead letters as rows, or as what it was.

    Memory: a batch, and what stagers hold.

    `counted`: `open`, `tried`, `messages`, `rows` and `edited` as in `DeadReplayResult`.
    `refusals`: what was tried and refused again.
    """

    def __init__(
        self, pipeline: Pipeline, before: Receipt, request: DeadReplayRequest, attempt: str
    ) -> None:
        self.request, self.attempt = request, attempt
        self.counted: Counter[str] = Counter()
        self.refusals = Refusals()
        self._before, self._store = before, pipeline.dead_letters
        if request.dry_run:
            rows: StagerFactory = _Unstaged
            dead: StagerFactory = _Unstaged
        else:
            pipeline.sink.prepare(pipeline.owner())
            pipeline.dead_letters.prepare(pipeline.owner())
            bind_table(pipeline)
            named = (before.plan, before.generation + 1, attempt)
            rows, dead = pipeline.sink.stager(*named), pipeline.dead_letters.stager(*named)
        decoder = decoder_for(pipeline, sorted({split.topic for split in before.plan.splits}))
        decode, transform = decoder.open(), pipeline.transform().open()
        self._decode: Decode = lambda messages: transform(decode(messages))
        self._keyed = pipeline.sink.capabilities.mode != "append"
        self._splits = [
            _SplitWork(split, counts, rows, dead)
            for split, counts in zip(before.plan.splits, before.splits, strict=True)
        ]

    def read(self) -> None:
        """All letters of the attempt that counts, each by the split that holds it."""
        places = Places(self._before.splits)
        for letters in letters_of(self._store, self._before.window, self._before.attempt):
            where = places.of(
                *(letters[DEFAULT[name]] for name in ("topic", "partition", "offset"))
            )
            for number in np.unique(where).tolist():
                self._take(self._splits[number], letters.filter(pa.array(where == number)))
                crash_point("write.middle")

    def _take(self, work: _SplitWork, letters: pa.RecordBatch) -> None:
        self.counted["open"] += letters.num_rows
        chosen = self.request.chosen.mask(letters)
        work.keep(letters.filter(pa.array(~chosen)))
        letters = letters.filter(pa.array(chosen))
        if not letters.num_rows:
            return
        messages, tried, edited = (
            messages_of(letters),
            np.ones(letters.num_rows, bool),
            np.zeros(letters.num_rows, bool),
        )
        if self.request.edit is not None:
            messages, tried, edited = with_edits(letters, messages, self.request.edit)
        work.keep(letters.filter(pa.array(~tried)))
        letters, messages, edited = (
            letters.filter(pa.array(tried)),
            messages.filter(pa.array(tried)),
            edited[tried],
        )
        if letters.num_rows:
            self._try(work, letters, messages, edited)

    def _try(
        self, work: _SplitWork, letters: pa.RecordBatch, messages: pa.RecordBatch, edited: Mask
    ) -> None:
        decoded = self._decode(messages)
        refuse_unplaced(work.split, messages, decoded, keyed=self._keyed)
        decoded = work.stage(decoded, messages, keyed=self._keyed)
        again = letters.take(decoded.dead_index)
        self.refusals.add(
            decoded.dead_stage.to_pylist(),
            decoded.dead_reason.to_pylist(),
            decoded.dead_detail.to_pylist(),
            again["_offset"].to_pylist(),
        )
        work.keep(again)
        work.count(decoded)
        accepted = np.ones(letters.num_rows, bool)
        accepted[decoded.dead_index.to_numpy()] = False
        self.counted.update(
            tried=letters.num_rows,
            messages=int(accepted.sum()),
            rows=decoded.rows.num_rows,
            edited=int((accepted & edited).sum()),
        )

    def finish(self) -> list[Staged]:
        """What to commit, split by split, with the window's counts as they are then."""
        staged = [work.finish() for work in self._splits]
        crash_point("write.after")
        return staged

    def discard(self) -> None:
        """After a failure: what was staged is left to a sweep."""
        for work in self._splits:
            work.discard()


class _SplitWork:
    """What becomes of one split's dead letters.

    A stager is made for the first of its rows, or letters.
    """

    def __init__(
        self, split: Split, before: SplitCounts, rows: StagerFactory, dead: StagerFactory
    ) -> None:
        self.split = split
        self._before, self._rows, self._dead = before, _Lazily(split, rows), _Lazily(split, dead)
        self._verdicts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._first: list[tuple[int, str]] = []

    def keep(self, letters: pa.RecordBatch) -> None:
        """These stay dead, as they are."""
        if not letters.num_rows:
            return
        reasons = letters["reason"].to_pylist()
        self._reasons.update(reasons)
        self._first += zip(
            letters["_offset"].slice(0, SHOWN).to_pylist(), reasons[:SHOWN], strict=True
        )
        self._verdicts["dead"] += letters.num_rows
        self._dead.stager().add(letters.select(REASONS.names), messages_of(letters))

    def stage(self, decoded: Decoded, messages: pa.RecordBatch, *, keyed: bool) -> Decoded:
        """Stage what a decoder and the rules took; what became of the messages then
        (`ingest.runner.task.stage_rows`).
        """
        return (
            stage_rows(self._rows.stager(), messages, decoded, keyed=keyed)
            if decoded.valid
            else decoded
        )

    def count(self, decoded: Decoded) -> None:
        """What was staged."""
        deletes = 0 if decoded.deletes is None else len(decoded.deletes.index)
        counted = {
            "valid": decoded.valid,
            "rows": decoded.rows.num_rows,
            "dropped": decoded.dropped,
            "filtered": decoded.filtered,
            "truncated": decoded.truncated,
        }
        self._verdicts.update(counted, deletes=deletes)

    def finish(self) -> Staged:
        """What to commit, and the split's counts as they are then."""
        rows, dead, before, more = (
            self._rows.finish(),
            self._dead.finish(),
            self._before,
            self._verdicts,
        )
        counts = msgspec.structs.replace(
            before,
            valid=before.valid + more["valid"],
            rows=before.rows + more["rows"],
            dead=more["dead"],
            dropped=before.dropped + more["dropped"],
            filtered=before.filtered + more["filtered"],
            truncated=before.truncated + more["truncated"],
            deletes=before.deletes + more["deletes"],
            rows_staged=before.rows_staged + rows.rows,
            dead_staged=dead.rows,
            reasons=tuple(sorted(self._reasons.items())),
            first_dead=tuple(sorted(self._first)[:SHOWN]),
            checksums=Checksums(
                text(int(before.checksums.rows, 16) + int(rows.checksum, 16)), dead.checksum
            ),
        )
        return Staged(self.split, counts, rows.committables, dead.committables)

    def discard(self) -> None:
        """Close what is open."""
        self._rows.discard()
        self._dead.discard()


class _Lazily:
    """A stager that is made when there is something to stage."""

    def __init__(self, split: Split, factory: StagerFactory) -> None:
        self._split, self._factory = split, factory
        self._made: Stager | None = None

    def stager(self) -> Stager:
        """The one."""
        self._made = self._made or self._factory(self._split)
        return self._made

    def finish(self) -> Staging:
        """What it staged; of none, nothing."""
        return Staging() if self._made is None else self._made.finish()

    def discard(self) -> None:
        """Close it, if there is one."""
        if self._made is not None:
            self._made.discard()


class _Unstaged:
    """A stager of a dry run: it counts, and writes nothing."""

    def __init__(self, split: Split) -> None:
        del split
        self._rows = 0

    def add(self, rows: pa.RecordBatch, messages: pa.RecordBatch) -> None:
        del messages
        self._rows += rows.num_rows

    def finish(self) -> Staging:
        return Staging(self._rows)

    def discard(self) -> None:
        """Nothing was written anywhere."""
