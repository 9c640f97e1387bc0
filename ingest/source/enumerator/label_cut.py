"""The settled rule: how a label cuts a log with some late, early or missing timestamps.

Pure.

A label's cut is the first visible message that meets two conditions:

- Its timestamp is at or after the label.
- It begins a run of 20 visible messages (fewer at the log's end), and at least half of
  them are stamped at or after the label.

A message without a timestamp counts as before every label.

The rule can be expressed for a message without a label. Take the n messages that begin
with it: at most n // 2 of them may be before the label. So the label is at most element
n // 2 of their sorted timestamps, and at most the message's own timestamp. This limit is
the message's *reach*: a label's cut is the first message whose reach is at or above the
label. So cuts rise with labels, and one pass over the log answers any number of ascending
labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from windrow.ingest.ports.broker import OffsetAndEpoch, Stamps

AHEAD = 20
"""The number of visible messages in a run, the first one included."""

_Longs = npt.NDArray[np.int64]


def find_cuts(chunks: Iterable[Stamps], labels: Sequence[int]) -> Iterator[OffsetAndEpoch]:
    """Finds the cut of each label, in order, and yields it as soon as it is known.

    A label that the log doesn't reach has no cut.

    Args:
        chunks: a part of a log in offset order. Its end counts as the end of the log.
        labels: epoch milliseconds, ascending. They are not negative, so a message without
            a timestamp (-1) is before all of them.
    """
    cut_count = 0
    for piece, ready in _overlapping(chunks):
        since = 0
        while cut_count < len(labels):
            hit = _first_reaching(piece.timestamps, since, ready, labels[cut_count])
            if hit is None:
                break
            since, reach = hit
            cut = _position(piece, since)
            while cut_count < len(labels) and labels[cut_count] <= reach:
                cut_count += 1
                yield cut
        if cut_count == len(labels):
            return


def cut_may_precede(first: _Longs, label: int) -> bool:
    """Returns whether a message right before the `first` ones could have been the label's cut.

    If it could not, the rest of the log shows the label's cut.

    Args:
        first: the timestamps of the first messages of a log whose beginning is gone.
        label: epoch milliseconds.
    """
    leading_stamps = first[: AHEAD - 1]
    return bool(2 * np.count_nonzero(leading_stamps < label) <= len(leading_stamps) + 1)


def _overlapping(chunks: Iterable[Stamps]) -> Iterator[tuple[Stamps, int]]:
    """Yields each chunk after the undecided messages, and the number of messages to decide now."""
    rest: Stamps | None = None
    for chunk in chunks:
        piece = chunk if rest is None else _join(rest, chunk)
        ready = max(0, len(piece.offsets) - AHEAD + 1)
        if ready:
            yield piece, ready
        rest = Stamps(piece.offsets[ready:], piece.timestamps[ready:], piece.epochs[ready:])
    if rest is not None and len(rest.offsets):
        yield rest, len(rest.offsets)


def _join(first: Stamps, second: Stamps) -> Stamps:
    return Stamps(
        np.concatenate([first.offsets, second.offsets]),
        np.concatenate([first.timestamps, second.timestamps]),
        np.concatenate([first.epochs, second.epochs]),
    )


def _first_reaching(stamps: _Longs, since: int, ready: int, label: int) -> tuple[int, int] | None:
    """Returns the index of the first message in [since, ready) that reaches the label.

    Its reach comes with it. The range isn't empty. Candidates are examined in growing
    blocks, because in a healthy log the first message is the answer.
    """
    candidates = since + np.flatnonzero(stamps[since:ready] >= label)
    done, block = 0, 1
    while done < len(candidates):
        candidate_block = candidates[done : done + block]
        reach = _reach(stamps, candidate_block)
        hits = np.flatnonzero(reach >= label)
        if len(hits):
            return int(candidate_block[hits[0]]), int(reach[hits[0]])
        done, block = done + block, block * 8
    return None


def _reach(stamps: _Longs, indices: npt.NDArray[np.intp]) -> _Longs:
    """Returns the reach of each of these messages: the highest label that it would cut."""
    ahead_counts = np.minimum(len(stamps) - indices, AHEAD)
    ahead = indices[:, None] + np.arange(AHEAD)
    padded = np.where(
        ahead < len(stamps), stamps[np.minimum(ahead, len(stamps) - 1)], np.iinfo(np.int64).max
    )
    padded.sort(axis=1)
    middle: _Longs = padded[np.arange(len(ahead_counts)), ahead_counts // 2]
    own_stamps: _Longs = stamps[indices]
    return np.minimum(middle, own_stamps)


def _position(piece: Stamps, index: int) -> OffsetAndEpoch:
    epoch = int(piece.epochs[index])
    return OffsetAndEpoch(int(piece.offsets[index]), None if epoch < 0 else epoch)
