"""Compares the sink's receipts with each other, the ledger, the table's rows and the topics.

Verification only reads. The comparisons are pure functions from values to findings;
`verify` fetches the values.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import msgspec

from windrow.ingest.admin.findings import (
    ALLOWED,
    EXACTLY,
    REPORT,
    About,
    Finding,
    changed_table_advice,
    exit_code,
    finding_of_error,
)
from windrow.ingest.admin.verify_contents import compare_contents, find_unnamed
from windrow.ingest.admin.verify_keyed import compare_merged
from windrow.ingest.admin.verify_ledger import against_ledger
from windrow.ingest.admin.verify_topics import against_topics
from windrow.ingest.errors import RefusedError, UnreachableError, format_count
from windrow.ingest.model.boundary import Boundary, Label, TopicPartition, is_later, label_text
from windrow.ingest.model.lookup import Pin
from windrow.ingest.model.plan import Plan, Split, covered_ranges
from windrow.ingest.model.receipt import Committed, Receipt
from windrow.ingest.model.source import OnRemoved
from windrow.ingest.model.tiling import offset_ranges, same_source, stop_start_difference
from windrow.ingest.ports.broker import Broker
from windrow.ingest.ports.dead_letters import DeadLetters
from windrow.ingest.ports.ledger import Ledger
from windrow.ingest.ports.sink import (
    Audit,
    Capabilities,
    KeyedTablesAudit,
    PublishedAudit,
    RowsHeld,
    Sink,
    Unreadable,
)
from windrow.ingest.runner.dead_publishing import is_unpublished


class Verified(msgspec.Struct, frozen=True):
    """The result: the numbers of compared windows and rows, and the findings."""

    windows: int
    rows: int
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        return exit_code(self.findings)


def verify(
    pipeline: str,
    sink: Sink,
    dead_letters: DeadLetters,
    ledger: Ledger,
    broker: Broker,
    on_removed: OnRemoved = "fail",
    *,
    deep: bool = False,
    dead_topic: str | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Verified:
    """Makes all comparisons of one pipeline.

    If a system can't be reached, that is a finding, and the other comparisons continue. A
    table in which rows replace each other is compared with the sum over its receipts.

    Args:
        pipeline: the id of the pipeline.
        sink: the table.
        dead_letters: the dead letters.
        ledger: the ledger.
        broker: the cluster.
        on_removed: with "drop", topics that are gone are information only.
        deep: also read all rows and dead letters, and compare their values with the
            checksums.
        dead_topic: the topic in which dead letters must be published.
        sleep: waits some seconds; tests replace it.
    """
    audit = sink.audit()
    try:
        all_receipts = list(audit.receipts())
    except RefusedError as error:
        return Verified(0, 0, (finding_of_error(error, "receipts"),))
    unread = {u.key: u for u in all_receipts if isinstance(u, Unreadable)}
    committed = sorted(
        (c for c in all_receipts if isinstance(c, Committed)), key=lambda c: c.receipt.window
    )
    receipts = [c.receipt for c in committed if c.receipt.window.pipeline == pipeline]
    findings = [Finding("wrong", "receipts", u.message, u.advice, u.key) for u in unread.values()]
    by_ledger = _findings_of(
        "ledger", lambda: against_ledger(pipeline, receipts, unread, sink, ledger)
    )
    # the comparison with the ledger has reported these windows
    lost_windows = (
        () if sink.capabilities.replaces else [f.window for f in by_ledger if f.window is not None]
    )
    findings += _find_unrepeatable(receipts)
    findings += [
        *compare_receipts(receipts),
        *check_tiling(receipts, {*unread, *lost_windows}),
        *by_ledger,
    ]
    of_rows = receipts
    if isinstance(audit, KeyedTablesAudit):
        of_rows = [audit.less_keyed(receipt) for receipt in receipts]
        for table in audit.keyed_tables:
            assert table.keyed is not None
            own = [c.receipt for c in table.receipts() if isinstance(c, Committed)]
            findings += compare_merged(own, table, table.keyed, deep=deep, complete=not unread)
    if audit.keyed is None:
        findings += _findings_of(
            "table",
            lambda: _find_foreign_rows(
                {r.window.key for r in receipts} | unread.keys(), audit.windows()
            ),
        )
        findings += _per_window(
            "table", of_rows, lambda r: _compare_table_rows(r, audit, sink.capabilities)
        )
    else:
        findings += compare_merged(receipts, audit, audit.keyed, deep=deep, complete=not unread)
    findings += _per_window(
        "table",
        receipts,
        lambda r: _compare_dead_letters(r, dead_letters, sink.capabilities),
    )
    if dead_topic is not None:
        findings += _per_window(
            "table", receipts, partial(_find_unpublished, dead_letters, dead_topic)
        )
    if deep:
        findings += find_unnamed(pipeline, audit, sink.capabilities)
        findings += compare_contents(of_rows, audit, dead_letters, sink.capabilities)
    findings += _findings_of(
        "topic", lambda: against_topics(pipeline, receipts, ledger, broker, on_removed, sleep)
    )
    if any(finding.level == "wrong" for finding in findings):
        findings = _leave_out_changed(findings, committed, audit)
    return Verified(len(receipts), sum(map(_rows, receipts)), tuple(findings))


def _leave_out_changed(
    findings: Sequence[Finding], compared: Sequence[Committed], audit: Audit
) -> list[Finding]:
    """Leaves out what is wrong with windows that were committed since their receipts were read.

    Newer rows were compared with an older receipt, or with none. Another finding says so.
    """
    older = {c.receipt.window.key: c.receipt for c in compared}
    newest = [c.receipt for c in audit.receipts() if isinstance(c, Committed)]
    changed = {r.window.key for r in newest if r != older.get(r.window.key)}
    # a table with a primary key is compared as a whole
    is_whole = bool(changed) and (audit.keyed is not None or isinstance(audit, KeyedTablesAudit))
    left_out = [
        finding
        for finding in findings
        if finding.level == "wrong"
        and (
            finding.window in changed
            if finding.window is not None
            else is_whole and finding.about == "table"
        )
    ]
    message = "a window was committed while the table was compared with its receipts"
    return [finding for finding in findings if finding not in left_out] + [
        Finding("unchecked", "table", message, "Verify it again.", key)
        for key in sorted({finding.window for finding in left_out}, key=str)
    ]


def _find_unrepeatable(receipts: Sequence[Receipt]) -> list[Finding]:
    """Finds the windows with lookups whose answers can't be requested again."""
    window_sources = [
        (r.window.key, [p.source for p in _pins(r) if not p.version]) for r in receipts
    ]
    services, keys = (
        {source for _, sources in window_sources for source in sources},
        [key for key, sources in window_sources if sources],
    )
    if not keys:
        return []
    message = (
        f"{format_count(len(keys), 'window')} from {keys[0]} to {keys[-1]} rest on answers of"
        f" {', '.join(sorted(services))}, which can't be asked for them again"
    )
    return [Finding("info", "windows", message, "A replay looks up in what is there then.")]


def _pins(receipt: Receipt) -> tuple[Pin, ...]:
    return receipt.pins + (() if receipt.dead_replay is None else receipt.dead_replay.pins)


def _rows(receipt: Receipt) -> int:
    """Returns the rows that a window added to the table, minus those that it removed."""
    merged = receipt.merged
    return merged.rows_added - merged.rows_removed if merged is not None else receipt.table_rows


def _findings_of(
    about: About, compare: Callable[[], list[Finding]], window: str | None = None
) -> list[Finding]:
    """Returns the findings of a comparison. An error of the comparison becomes a finding, too."""
    try:
        return compare()
    except UnreachableError as error:  # not about this window: the next window would have it, too
        return [finding_of_error(error, about)]
    except RefusedError as error:
        return [finding_of_error(error, about, window)]


def _per_window(
    about: About, receipts: Iterable[Receipt], compare: Callable[[Receipt], list[Finding]]
) -> list[Finding]:
    """Compares window by window, until a system can't be reached."""
    findings: list[Finding] = []
    for receipt in receipts:
        findings += _findings_of(about, partial(compare, receipt), receipt.window.key)
        if findings and findings[-1].level == "unchecked":
            break
    return findings


def compare_receipts(receipts: Sequence[Receipt]) -> list[Finding]:
    """Checks the counts of each receipt, and that no offset is in two windows. Pure."""
    findings = [f for r in receipts for f in (*_one_receipt(r), *_partial_findings(r))]
    ranges = sorted((c, r.window.key) for r in receipts for c in covered_ranges(r.plan))
    for (lower, lower_key), (upper, upper_key) in pairwise(ranges):
        if lower.overlaps(upper):
            partition = f"partition {lower.partition} of topic {lower.topic_id}"
            message = (
                f"offset {upper.start} of {partition} is in two windows: {lower_key} and"
                f" {upper_key}"
            )
            findings.append(
                Finding(
                    "wrong",
                    "receipts",
                    message,
                    "Replay neither of them before you know which one has the rows.",
                    upper_key,
                )
            )
    return findings


def _one_receipt(receipt: Receipt) -> list[Finding]:
    counts, length = receipt.counts, sum(s.stop - s.start for s in receipt.plan.splits)
    planned_splits = Counter((s.topic, s.partition, s.start, s.stop) for s in receipt.plan.splits)
    split_counts = Counter((s.topic, s.partition, s.start, s.stop) for s in receipt.splits)
    problems = []
    if counts.read != counts.valid + counts.dead + counts.dropped + counts.filtered:
        parts = f"{counts.valid} valid + {counts.dead} dead + {counts.dropped} dropped"
        parts += f" + {counts.filtered} filtered" if counts.filtered else ""
        problems.append(f"{format_count(counts.read, 'message')} read, but {parts}")
    if counts.read + counts.invisible + counts.skipped != length:
        parts = f"{counts.read} read + {counts.invisible} invisible + {counts.skipped} skipped"
        problems.append(f"{parts} are not the {format_count(length, 'offset')} of the plan")
    if planned_splits != split_counts:
        problems.append("its splits are not those of its plan")
    problems += find_uncovered(receipt.plan)
    if receipt.stop is not None and not receipt.stop.covers(receipt.plan.splits):
        problems.append("it has messages from behind window.stop")
    return [Finding("wrong", "receipts", p, REPORT, receipt.window.key) for p in problems]


def _partial_findings(receipt: Receipt) -> list[Finding]:
    """Returns the losses of a window that was committed with `on_loss: skip`."""
    advice = "These messages can't be read any more; the rest of the window is complete."
    return [
        Finding("info", "receipts", f"the window is partial: {loss}", advice, receipt.window.key)
        for loss in receipt.partial
    ]


def find_uncovered(plan: Plan) -> list[str]:
    """Describes the topic-partitions whose splits don't tile the boundaries' offsets. Pure."""
    splits: dict[TopicPartition, list[Split]] = defaultdict(list)
    for split in sorted(plan.splits):
        splits[split.tp].append(split)
    try:
        expected_ranges = offset_ranges(plan.start, plan.stop)
    except ValueError as error:
        return [str(error)]
    problems = [
        f"{tp} is read, and is missing in its boundary"
        for tp in splits
        if tp not in expected_ranges
    ]
    for tp, (low, high) in expected_ranges.items():
        edges = [low.offset, *(o for s in splits[tp] for o in (s.start, s.stop)), high.offset]
        if any(a != b for a, b in zip(edges[::2], edges[1::2], strict=True)):
            problems.append(
                f"the splits of {tp} are not the offsets {low.offset} to {high.offset} between its"
                " boundaries"
            )
    return problems


def check_tiling(receipts: Sequence[Receipt], unread: Collection[str] = ()) -> list[Finding]:
    """Finds gaps between committed windows, and neighbours with different boundaries. Pure.

    Args:
        receipts: the receipts, in window order.
        unread: keys of committed windows whose receipts can't be read. A gap that contains
            one of them is not reported.
    """
    first = receipts[0].window.start if receipts else 0
    findings = _gap_findings(0, first, unread) if isinstance(first, int) and first > 0 else []
    return findings + [
        f
        for earlier, later in pairwise(receipts)
        for f in _compare_neighbours(earlier, later, unread)
    ]


def _compare_neighbours(earlier: Receipt, later: Receipt, unread: Collection[str]) -> list[Finding]:
    stop, start = earlier.plan.stop, later.plan.start
    if is_later(stop.label, start.label):
        message = f"windows {earlier.window.key} and {later.window.key} overlap in time"
        return [
            Finding("wrong", "windows", message, "Was the grid changed by hand?", later.window.key)
        ]
    replaced = [] if same_source(stop, start) else [_replaced_finding(stop, start)]
    if stop.label != start.label:
        return [*_gap_findings(stop.label, start.label, unread), *replaced]
    unlike = stop_start_difference(stop, start)
    if unlike:
        message = f"the end of window {earlier.window.key} is not the start of the next: {unlike}"
        return [
            Finding(
                "wrong",
                "windows",
                message,
                "Messages between them are lost, or in the table twice.",
                later.window.key,
            )
        ]
    return replaced


def _gap_findings(start: Label, end: Label, unread: Collection[str]) -> list[Finding]:
    """Returns the finding of a gap between two labels.

    Windows in time may be left out. A micro-batch is committed before the next one is cut,
    so a gap between micro-batches is wrong.
    """
    if any(label_text(start) <= key < label_text(end) for key in unread):
        return []
    message = f"not committed: {label_text(start)} / {label_text(end)}"
    if isinstance(start, int):
        advice = (
            "Later micro-batches are committed, so these commits were lost. Was the table restored"
            " from a backup? Run them by their numbers."
        )
        return [Finding("wrong", "windows", message, advice)]
    return [Finding("info", "windows", message, "Run them if they are wanted.")]


def _replaced_finding(stop: Boundary, start: Boundary) -> Finding:
    label_range = (
        label_text(start.label)
        if start.label == stop.label
        else f"{label_text(stop.label)} / {label_text(start.label)}"
    )
    return Finding(
        "info",
        "windows",
        f"the source was replaced at {label_range} (rebase)",
        "Windows before it can't be replayed.",
    )


def _find_foreign_rows(
    known_keys: Collection[str], filled: Collection[str | None]
) -> list[Finding]:
    advice = "Another program wrote to the table. Only rows of committed windows are windrow's."
    null_advice = (
        "Delete them before a window is replayed: if they were windrow's, it writes them again."
    )
    message_start = "the table holds rows of"
    return [
        Finding(
            "wrong", "table", f"{message_start} no window, for that column is null", null_advice
        )
        if key is None
        else Finding("wrong", "table", f"{message_start} a window without a receipt", advice, key)
        for key in sorted(set(filled) - set(known_keys), key=str)
    ]


def _compare_table_rows(
    receipt: Receipt, audit: Audit, capabilities: Capabilities
) -> list[Finding]:
    table_rows = audit.rows_held(receipt.window)
    findings = compare_rows(receipt, table_rows, capabilities)
    if not findings or not isinstance(audit, PublishedAudit):
        return findings
    return compare_rows(receipt, table_rows, capabilities, audit.may_lack(receipt.window))


def compare_rows(
    receipt: Receipt,
    rows: Iterable[RowsHeld],
    capabilities: Capabilities = EXACTLY,
    may_lack: str | None = None,
) -> list[Finding]:
    """Compares the rows of one window with its receipt, per topic-partition. Pure.

    Args:
        receipt: the receipt of the window.
        rows: the numbers of rows in the table.
        capabilities: what the sink guarantees.
        may_lack: why rows may be missing without an error; None: none may be missing.
    """
    by_tp = {TopicPartition(h.topic, h.partition): h for h in rows}
    expected_rows, messages = Counter[TopicPartition](), Counter[TopicPartition]()
    for s in receipt.splits if receipt.expired_at is None else ():
        # a table of changes keeps deletes as rows; other tables have no deletes here
        expected_rows[TopicPartition(s.topic, s.partition)] += s.rows + s.deletes
        messages[TopicPartition(s.topic, s.partition)] += s.valid
    problems, allowed = list[str](), list[str]()
    for tp in sorted({*by_tp, *expected_rows}):
        actual = by_tp.get(tp, RowsHeld(tp.topic, tp.partition, 0, 0, 0, 0))
        different = _differences(tp, actual, expected_rows[tp], messages[tp])
        is_lacking = actual.rows < expected_rows[tp] or actual.offsets < messages[tp]
        may_be_missing = may_lack is not None and actual.rows < expected_rows[tp]
        (allowed if capabilities.allows(loss=is_lacking) or may_be_missing else problems).extend(
            different
        )
        splits = [s for s in receipt.plan.splits if s.tp == tp]
        if (
            actual.rows
            and splits
            and not min(s.start for s in splits)
            <= actual.lowest
            <= actual.highest
            < max(s.stop for s in splits)
        ):
            problems.append(
                f"{tp}: offsets {actual.lowest} to {actual.highest} lie outside the receipt's range"
            )
    key, may = receipt.window.key, may_lack or ALLOWED
    return [
        *(
            Finding("wrong", "table", p, changed_table_advice(receipt, capabilities), key)
            for p in problems
        ),
        *(Finding("info", "table", p, may, key) for p in allowed),
    ]


def _differences(tp: TopicPartition, actual: RowsHeld, rows: int, messages: int) -> Iterator[str]:
    """Describes how a table's rows of a topic-partition differ from the receipt's counts."""
    if actual.rows != rows:
        yield f"{tp}: {format_count(actual.rows, 'row')} in the table, {rows:,} in the receipt"
    if rows == messages and actual.rows != actual.offsets:
        extra_rows = format_count(actual.rows - actual.offsets, "row")
        yield f"{tp}: {extra_rows} with the offset of another row"
    elif messages not in {rows, actual.offsets}:
        yield (
            f"{tp}: rows of {format_count(actual.offsets, 'message')} in the table, of {messages}"
            " in the receipt"
        )


def _compare_dead_letters(
    receipt: Receipt, store: DeadLetters, capabilities: Capabilities
) -> list[Finding]:
    """Compares the number of dead letters with the receipt, unless the store has removed them."""
    count = store.count(receipt.window, receipt.attempt)
    findings = compare_dead(receipt, count, capabilities)
    are_expired = bool(findings) and not count and store.is_expired(receipt.window, receipt.attempt)
    return [] if are_expired else findings


def compare_dead(
    receipt: Receipt, count: int, capabilities: Capabilities = EXACTLY
) -> list[Finding]:
    """Compares the number of a window's committed dead letters with its receipt. Pure."""
    if count == receipt.counts.dead:
        return []
    key = receipt.window.key
    message = (
        f"{format_count(count, 'dead letter')} in their table, {receipt.counts.dead} in the receipt"
    )
    return [Finding("wrong", "table", message, changed_table_advice(receipt, capabilities), key)]


def _find_unpublished(store: DeadLetters, topic: str, receipt: Receipt) -> list[Finding]:
    """Returns the finding of a window whose dead letters may not be in their topic.

    The run died after the commit, or the window is older than the setting of the topic.
    """
    if not is_unpublished(store, receipt):
        return []
    key = receipt.window.key
    message = f"its dead letters are not known to be in the topic {topic}"
    advice = f"windrow run SPEC --window {key} publishes them."
    return [Finding("wrong", "table", message, advice, key)]
