"""Poison pills: messages that kill the process that decodes them. Windows leave them out.

Each has a record in the ledger, beside the plans, which don't change:

1. A message has killed two processes, alone (`runner.poison_search`).
2. Its record is put into the ledger, if absent. If another run has searched at the same time,
   both go on with the same record.
3. The driver may die here.
4. An attempt that begins after the record, in this run or the next, leaves the message out and
   stages it as a dead letter. So no commit leaves out a message without a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
import numpy as np
import pyarrow as pa

from windrow.ingest.crashpoints import crash_point
from windrow.ingest.model.ledger_records import PoisonPill
from windrow.ingest.model.plan import Plan, Split, covered_ranges
from windrow.ingest.ports.decoder import Decode, Decoded, Refusal
from windrow.ingest.ports.ledger import Ledger

POISON_PILL = "poison_pill"
"""The reason of a dead letter that was left out before it was decoded."""


def poison_pills_in(
    ledger: Ledger, plans: Sequence[Plan], forget_at: datetime | None = None
) -> list[tuple[PoisonPill, ...]]:
    """Returns the poison pills that each of some plans of one pipeline leaves out.

    Args:
        ledger: the ledger.
        plans: the plans.
        forget_at: the time at which the records of these poison pills end, so that none is
            left out; None: they don't end.
    """
    pipeline_id = plans[0].window.pipeline if plans else ""
    left_out = [pill for pill in ledger.poison_pills(pipeline_id) if pill.left_out]
    pills_by_plan = [
        tuple(
            pill
            for pill in left_out
            if any(
                (part.topic_id, part.partition) == (pill.topic_id, pill.partition)
                and part.start <= pill.offset < part.stop
                for part in covered_ranges(plan)
            )
        )
        for plan in plans
    ]
    if forget_at is None:
        return pills_by_plan
    for pill in {pill for pills in pills_by_plan for pill in pills}:
        end = msgspec.structs.replace(
            pill, number=pill.number + 1, left_out=False, recorded_at=forget_at
        )
        ledger.put_poison_pill(pipeline_id, end)
    return [() for _ in plans]


def record_poison_pill(
    ledger: Ledger, plan: Plan, split: Split, offset: int, death: tuple[str, str], now: datetime
) -> PoisonPill:
    """Records a message that has killed two processes, unless it is recorded.

    Args:
        ledger: the ledger.
        plan: the plan of its window.
        split: the split of the plan that it is in.
        offset: its offset.
        death: `stage` and `reason` of the record.
        now: the time of the record.

    Returns:
        The recorded poison pill.
    """
    topic_id = {topic.topic: topic.topic_id for topic in plan.stop.topics}[split.topic]
    number = max(
        (
            record.number + (not record.left_out)
            for record in ledger.poison_pills(plan.window.pipeline)
            if (record.topic_id, record.tp, record.offset) == (topic_id, split.tp, offset)
        ),
        default=0,
    )
    crash_point("poison.before")
    pill = ledger.put_poison_pill(
        plan.window.pipeline,
        PoisonPill(split.topic, topic_id, split.partition, offset, number, True, *death, now),
    )
    crash_point("poison.after")
    return pill


def leaving_out(pills: Sequence[PoisonPill], split: Split, decode: Decode) -> Decode:
    """Returns a function that refuses a split's poison pills, and decodes its other messages.

    Args:
        pills: poison pills, of any splits.
        split: the split.
        decode: decodes a batch of messages; it may be empty.
    """
    pill_by_offset = {pill.offset: pill for pill in pills if pill.tp == split.tp}

    def decode_others(messages: pa.RecordBatch) -> Decoded:
        offsets = messages.column("offset").to_numpy()
        rows = np.flatnonzero(np.isin(offsets, list(pill_by_offset)))
        others = pa.array(np.delete(np.arange(len(offsets)), rows))
        decoded = decode(messages.take(others)).renumber(others)
        for row, pill in ((row, pill_by_offset[offsets[row]]) for row in rows):
            refusal = Refusal(np.array([row]), POISON_PILL, f"It killed its process: {pill.reason}")
            decoded = decoded.refused(pill.stage, [refusal], pa.array(np.arange(len(offsets))))
        return decoded

    return decode_others if pill_by_offset else decode
