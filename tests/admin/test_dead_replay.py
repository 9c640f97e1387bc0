"""Dead-letter replay: each message is either in the table or an open dead letter, exactly once.

That holds after any crash, and with other runs at the same time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.admin.ward import START, DeadLetterScene, Kind, hour, repair
from windrow.ingest.admin.dead_replay import TRIES
from windrow.ingest.admin.edit_function import RefusedMessage, load_edit
from windrow.ingest.admin.rebuild import rebuild
from windrow.ingest.admin.receipts import restore
from windrow.ingest.crashpoints import CRASH_POINTS, CrashError
from windrow.ingest.errors import OutcomeUnknownError, RefusedError, SpecError, UnreachableError
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.receipt import DeadReplay, Receipt
from windrow.ingest.ports.sink import Capabilities, Outcome
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.run_windows import run

BEFORE = [
    (p, o, reason)
    for p in (0, 1)
    for o, reason in ((1, "not_json"), (3, "wrong_type"), (4, "check:id:greater_than_or_equal_to"))
]


@pytest.fixture(params=["memory", "delta", pytest.param("sqlite", marks=pytest.mark.long)])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> DeadLetterScene:
    """A scene with two committed hours, for each kind of table."""
    filled_ward = DeadLetterScene(tmp_path, request.param)
    filled_ward.fill(0, 1)
    filled_ward.run(0, 1)
    return filled_ward


@pytest.fixture
def memory_scene(tmp_path: Path) -> DeadLetterScene:
    """A scene with two committed hours, in memory."""
    filled_ward = DeadLetterScene(tmp_path, "memory")
    filled_ward.fill(0, 1)
    filled_ward.run(0, 1)
    return filled_ward


def where_broken(message: RefusedMessage) -> RefusedMessage:
    """Repairs a message that is not JSON, and leaves other messages as they are."""
    return repair(message) if message.stage == "value" else message


def reasons(scene: DeadLetterScene, n: int = 0) -> list[tuple[int, int, str]]:
    """Returns the open dead letters of an hour, with offsets as in the first hour."""
    return [(p, o - 6 * n, reason) for p, o, reason in scene.open(n)]


# --------------------------------------------------------------------------------------------------


def test_todays_schema_accepts(scene: DeadLetterScene) -> None:
    """A message that today's schema accepts becomes a row of its own window, at its own offset.

    Other dead letters stay as they were, and the receipt counts both.
    """
    assert reasons(scene) == BEFORE
    letters = scene.open(1)
    result = scene.replay_dead_letters(0, scene.pipeline(lenient=True))
    assert (result.open, result.tried, result.messages, result.rows, result.edited) == (
        6,
        6,
        2,
        2,
        0,
    )
    assert {(refusal.stage, refusal.count) for refusal in result.refused} == {
        ("value", 2),
        ("rules", 2),
    }
    assert reasons(scene) == [letter for letter in BEFORE if letter[2] != "wrong_type"]
    assert [scene.ids()[hour(0).key, p, 3] for p in (0, 1)] == [[7], [7]]
    receipt = scene.receipt(0)
    assert result.committed.receipt == receipt
    assert (
        receipt.generation,
        receipt.counts.valid,
        receipt.counts.rows,
        receipt.counts.dead,
        receipt.counts.read,
    ) == (1, 8, 8, 4, 12)
    assert receipt.splits[0].reasons == (("check:id:greater_than_or_equal_to", 1), ("not_json", 1))
    assert receipt.splits[0].first_dead == (
        (1, "not_json"),
        (4, "check:id:greater_than_or_equal_to"),
    )
    assert receipt.dead_replay is not None
    assert (receipt.dead_replay.messages, receipt.dead_replay.edited) == (2, 0)
    assert scene.open(1) == letters
    scene.sound()


def test_again_what_is_left(scene: DeadLetterScene) -> None:
    """A second replay of dead letters continues from the first one.

    Its counts include those of the first, and its receipt names the attempt that read the log.
    """
    first = scene.receipt(0).attempt
    scene.replay_dead_letters(0, scene.pipeline(lenient=True))
    second = scene.receipt(0).attempt
    scene.replay_dead_letters(0, scene.pipeline(lenient=True, model="Looser"))
    receipt = scene.receipt(0)
    assert receipt.dead_replay == DeadReplay(replayed_attempt=second, read_by=first, messages=4)
    assert (receipt.generation, [o for _, o, _ in scene.open(0)]) == (2, [1, 1])
    assert [scene.ids()[hour(0).key, p, 4] for p in (0, 1)] == [[-5], [-5]]
    scene.sound()


def test_nothing_accepted_is_no_commit(scene: DeadLetterScene) -> None:
    """A replay that accepts no dead letter writes nothing, and its result has the counts.

    This is so if today's schema accepts none, none was chosen, or none is open.
    """
    committed_before = scene.sink.look(hour(0))
    result = scene.replay_dead_letters(0)
    assert (result.open, result.tried, result.messages, result.committed) == (
        6,
        6,
        0,
        committed_before,
    )
    assert sum(refusal.count for refusal in result.refused) == 6
    for chosen in ({"reason": "no such reason"}, {"stage": "key"}):
        assert scene.replay_dead_letters(0, scene.pipeline(lenient=True), **chosen).tried == 0
    assert scene.sink.look(hour(0)) == committed_before
    scene.replay_dead_letters(0, scene.pipeline(lenient=True, model="Looser"), repair)
    committed_after = scene.sink.look(hour(0))
    assert (scene.open(0), scene.replay_dead_letters(0, scene.pipeline(model="Looser")).open) == (
        [],
        0,
    )
    assert scene.sink.look(hour(0)) == committed_after


@pytest.mark.parametrize(
    ("chosen", "offsets"),
    [
        ({"reason": "wrong_type"}, [1, 4]),
        ({"stage": "rules"}, [1, 3]),
        ({"stage": "rules", "reason": "wrong_type"}, [1, 3, 4]),
    ],
)
def test_only_the_chosen_are_tried(
    memory_scene: DeadLetterScene, chosen: dict[str, str], offsets: list[int]
) -> None:
    """Only dead letters with the chosen stage or reason are replayed.

    Others stay as they were, even if today's schema accepts them.
    """
    memory_scene.replay_dead_letters(
        0, memory_scene.pipeline(lenient=True, model="Looser"), **chosen
    )
    assert [o for p, o, _ in memory_scene.open(0) if p == 0] == offsets
    assert memory_scene.verdict().ok


def test_what_stays_is_the_whole_message(memory_scene: DeadLetterScene) -> None:
    """A dead letter that stays keeps its bytes, headers and reason.

    Its attempt and generation become those of the replay.
    """
    letters_before = memory_scene.store.read(hour(0), memory_scene.receipt(0).attempt).to_pylist()
    memory_scene.replay_dead_letters(
        0,
        memory_scene.pipeline(lenient=True),
        lambda message: replace(message, key=b"edited", headers=()),
        reason="wrong_type",
    )
    letters_after = memory_scene.store.read(hour(0), memory_scene.receipt(0).attempt).to_pylist()
    changed_columns = {"attempt", "generation"}
    expected = [
        {k: v for k, v in letter.items() if k not in changed_columns}
        for letter in letters_before
        if letter["reason"] != "wrong_type"
    ]
    assert [
        {k: v for k, v in letter.items() if k not in changed_columns} for letter in letters_after
    ] == expected
    assert {letter["generation"] for letter in letters_after} == {1}


def test_a_dry_run_writes_nothing(scene: DeadLetterScene) -> None:
    """A dry run reports the messages that would be replayed, and writes no file."""
    state = sorted(
        (p, p.stat().st_mtime_ns)
        for p in scene.folder.rglob("*")
        if p.is_file() and "table" in str(p)
    )
    committed = scene.sink.look(hour(0))
    result = scene.replay_dead_letters(0, scene.pipeline(lenient=True), repair, dry_run=True)
    assert (result.messages, result.rows, result.edited, result.committed) == (6, 6, 6, committed)
    assert (
        sorted(
            (p, p.stat().st_mtime_ns)
            for p in scene.folder.rglob("*")
            if p.is_file() and "table" in str(p)
        )
        == state
    )


def test_messages_that_need_no_row(tmp_path: Path) -> None:
    """A tombstone that today's spec drops is no dead letter any more, and is counted as dropped."""
    scene = DeadLetterScene(tmp_path, "memory")
    scene.produce(0, b'{"id": 1}', None, b'{"id": 2}')
    scene.run(0)
    result = scene.replay_dead_letters(0, scene.pipeline(on_null="drop"))
    counts = scene.receipt(0).counts
    assert (result.messages, result.rows, counts.dead, counts.dropped, counts.valid) == (
        2,
        0,
        0,
        2,
        4,
    )
    for offsets in scene.expected_ids.values():
        del offsets[1]
    scene.sound()


def test_several_rows_of_a_message(memory_scene: DeadLetterScene) -> None:
    """A message that becomes two rows counts as one replayed message."""

    class Twice:
        def columns(self, input_columns: Any) -> Any:
            return input_columns

        def open(self) -> Any:
            import numpy as np
            import pyarrow as pa

            def twice(decoded: Any, _: Any) -> Any:
                index = np.repeat(np.arange(decoded.rows.num_rows), 2)
                return decoded.with_rows(decoded.rows.take(pa.array(index)), index)

            return twice

    pipeline = memory_scene.pipeline(lenient=True, transform=Twice)
    result = memory_scene.replay_dead_letters(0, pipeline, stage="schema")
    receipt = memory_scene.receipt(0)
    assert (result.messages, result.rows) == (2, 4)
    assert (receipt.counts.valid, receipt.counts.rows, receipt.counts.dead) == (8, 10, 4)
    assert [f for f in memory_scene.verified().findings if f.level == "wrong"] == []


# --------------------------------------------------------------------------------------------------


def test_an_edit_repairs(scene: DeadLetterScene) -> None:
    """A message that the edit function changed is decoded at its own offset and window.

    Edited messages are counted.
    """
    scene.expect()
    result = scene.replay_dead_letters(0, scene.pipeline(), repair, reason="not_json")
    assert (result.messages, result.edited) == (2, 2)
    assert [scene.ids()[hour(0).key, p, 1] for p in (0, 1)] == [[1001], [1001]]
    dead_replay = scene.receipt(0).dead_replay
    assert dead_replay is not None
    assert (dead_replay.messages, dead_replay.edited) == (2, 2)
    scene.sound()


def test_an_edit_that_changes_nothing_edits_nothing(memory_scene: DeadLetterScene) -> None:
    """A message that the edit function returns unchanged doesn't count as edited."""
    assert (
        memory_scene.replay_dead_letters(
            0,
            memory_scene.pipeline(lenient=True),
            lambda message: replace(message, headers=tuple(message.headers)),
        ).edited
        == 0
    )
    assert memory_scene.receipt(0).dead_replay == DeadReplay(
        memory_scene.receipt(0).dead_replay.replayed_attempt,
        memory_scene.receipt(0).dead_replay.replayed_attempt,
        2,
    )  # type: ignore[union-attr]


def test_none_leaves_a_message_alone(memory_scene: DeadLetterScene) -> None:
    """A message for which the edit function returns None isn't tried."""
    result = memory_scene.replay_dead_letters(
        0,
        memory_scene.pipeline(lenient=True),
        lambda message: None if message.partition else message,
    )
    assert (result.tried, result.messages) == (3, 1)
    assert memory_scene.verdict().ok


def test_an_edit_sees_the_whole_message(memory_scene: DeadLetterScene) -> None:
    """The edit function gets a message's place, bytes, headers in order, and the reason
    of refusal.
    """
    messages: list[RefusedMessage] = []

    def look(message: RefusedMessage) -> None:
        messages.append(message)

    memory_scene.replay_dead_letters(0, memory_scene.pipeline(), look)
    first = next(m for m in messages if (m.partition, m.offset) == (1, 1))
    assert (first.topic, first.key, first.value, first.headers) == (
        "shop.things",
        b"k",
        b"poison",
        (("h", b"1"), ("h", None)),
    )
    assert (first.stage, first.reason, first.timestamp) == (
        "value",
        "not_json",
        START.replace(second=1),
    )
    assert first.detail is not None


def fails(message: RefusedMessage) -> RefusedMessage:
    raise ValueError(f"secret {message.value!r}")


SCRIPT = """\
from dataclasses import replace


def edit(message):
    {}
"""


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "raise ValueError(message.value)",
            "edit failed: ValueError at {script}:5 (decode, shop.things[0]@1)",
        ),
        (
            "return message.value",
            "returned bytes, neither a message nor None (decode, shop.things[0]@1)",
        ),
        (
            "return replace(message, offset=7)",
            "changed the offset, which can't be changed",
        ),
        ("return replace(message, topic='x')", "changed the topic"),
        ("return replace(message, partition=7)", "changed the partition"),
        ("return replace(message, timestamp=None)", "changed the timestamp"),
        (
            "return replace(message, value='text')",
            "returned what no message can hold: Expected `bytes | null`, got `str` - at `value`",
        ),
        ("return replace(message, key=7)", "got `int` - at `key`"),
        (
            "return replace(message, headers={'a': b'b'})",
            "Expected `array`, got `object` - at `headers`",
        ),
        ("return replace(message, headers=[('a', 'b')])", "got `str` - at `headers[0][1]`"),
        (
            "return replace(message, headers=[('a', b'b', b'c')])",
            "Expected `array` of length 2, got 3 - at `headers[0]`",
        ),
    ],
)
def test_an_edit_that_is_wrong_ends_the_dead_replay(
    memory_scene: DeadLetterScene, body: str, says: str
) -> None:
    """An edit function that fails or returns a wrong message ends the replay.

    The error names the script's line and the message's place, without the payload. Nothing is
    committed.
    """
    script = memory_scene.folder / "fix.py"
    script.write_text(SCRIPT.format(body))
    committed_before = memory_scene.sink.look(hour(0))
    with pytest.raises(SpecError) as refused:
        memory_scene.replay_dead_letters(0, memory_scene.pipeline(), load_edit(script))
    assert says.format(script=script) in str(refused.value)
    assert "poison" not in str(refused.value)
    assert memory_scene.sink.look(hour(0)) == committed_before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "There is no script"),
        ("def edit(message)\n", "is not Python: line 1"),
        ("raise RuntimeError('secret')\n", "can't be run: RuntimeError at {script}:1"),
        ("edit = 7\n", "has no function edit"),
        ("", "has no function edit"),
    ],
)
def test_a_script_that_is_none(tmp_path: Path, text: str | None, says: str) -> None:
    """A script that is missing, isn't Python, or has no `edit` is refused before any message is
    read.
    """
    script = tmp_path / "fix.py"
    if text is not None:
        script.write_text(text)
    with pytest.raises(SpecError) as refused:
        load_edit(script)
    assert says.format(script=script) in str(refused.value)
    assert "secret" not in str(refused.value)


# --------------------------------------------------------------------------------------------------


def test_a_window_that_is_not_committed_is_run(memory_scene: DeadLetterScene) -> None:
    """A window that isn't committed has no dead letters to replay; a run reads its messages."""
    with pytest.raises(RefusedError, match="isn't committed, so it has no dead letters to replay"):
        memory_scene.replay_dead_letters(2)


def test_a_sink_without_replacements_is_not_asked(memory_scene: DeadLetterScene) -> None:
    """A table that can't replace windows is refused before any message is read."""
    memory_scene.sink.store.capabilities = Capabilities(replaces=False)
    with pytest.raises(SpecError, match="can't be replayed"):
        memory_scene.replay_dead_letters(0, memory_scene.pipeline(lenient=True))


@pytest.mark.parametrize("damage", ["lost", "twice", "changed", "elsewhere"])
def test_letters_that_are_not_the_receipts_are_refused(
    memory_scene: DeadLetterScene, damage: str
) -> None:
    """If the stored dead letters are not those of the receipt, nothing is replayed.

    A letter may be missing, doubled, changed or moved. The error names the split.
    """
    content = memory_scene.store.store.content
    pieces = content.rows[hour(0).key]
    first = pieces[0]
    value, offset = first.schema.get_field_index("value"), first.schema.get_field_index("_offset")
    changed = {
        "lost": first.slice(1),
        "twice": __import__("pyarrow").concat_tables([first, first.slice(0, 1)]),
        "changed": first.set_column(
            value, first.schema.field(value), [[b"other"] * first.num_rows]
        ),
        "elsewhere": first.set_column(offset, first.schema.field(offset), [[77] * first.num_rows]),
    }[damage]
    memory_scene.store.store.content = replace(content, rows={hour(0).key: (changed, *pieces[1:])})
    committed_before = memory_scene.sink.look(hour(0))
    with pytest.raises(
        RefusedError, match=r"are not those of its receipt: shop.things\[0\] offsets 0 to 6"
    ):
        memory_scene.replay_dead_letters(0, memory_scene.pipeline(lenient=True))
    assert memory_scene.sink.look(hour(0)) == committed_before


# --------------------------------------------------------------------------------------------------

POINTS = CRASH_POINTS[CRASH_POINTS.index("write.middle") :]


@pytest.mark.some(3)
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere(
    scene: DeadLetterScene, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash at any point, each message is a row or a dead letter, exactly once.

    The next replay accepts the rest, once.
    """
    scene.expect()
    monkeypatch.setenv("WINDROW_CRASH", f"{point}:raise")
    with pytest.raises(CrashError):
        scene.replay_dead_letters(0, scene.pipeline(lenient=True, model="Looser"), where_broken)
    monkeypatch.delenv("WINDROW_CRASH")
    assert scene.verdict().ok, str(scene.verdict())
    is_committed = point in ("commit.after", "report.before")
    assert len(scene.open(0)) == (0 if is_committed else 6)
    result = scene.replay_dead_letters(
        0, scene.pipeline(lenient=True, model="Looser"), where_broken
    )
    assert result.messages == (0 if is_committed else 6)
    assert (scene.open(0), scene.receipt(0).generation) == ([], 1)
    scene.sound()
    assert scene.verified().findings == ()  # the ledger has a copy of the receipt, too


def test_an_unknown_outcome_is_looked_at(memory_scene: DeadLetterScene) -> None:
    """After a commit without an answer, the next replay asks the table, and accepts the rest."""
    memory_scene.sink.store.fault = "lost"
    with pytest.raises(OutcomeUnknownError):
        memory_scene.replay_dead_letters(0, memory_scene.pipeline(lenient=True))
    assert memory_scene.verdict().ok
    assert memory_scene.replay_dead_letters(0, memory_scene.pipeline(lenient=True)).messages == 2
    memory_scene.sound()


class Interrupted:
    """A sink that lets another run commit right before its own first commit."""

    def __init__(self, sink: Any, meanwhile: Callable[[], object]) -> None:
        self._sink, self._meanwhile = sink, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def commit(self, receipt: Receipt, staged: Any) -> Outcome:
        turn, self._meanwhile = self._meanwhile, lambda: None
        turn()
        return self._sink.commit(receipt, staged)  # type: ignore[no-any-return]


def test_two_dead_replays_at_once(scene: DeadLetterScene) -> None:
    """The second of two simultaneous replays looks again, and accepts what the first one left.

    No message is doubled or lost.
    """
    scene.expect()
    lenient = scene.pipeline(lenient=True)
    slow = replace(
        lenient,
        sink=Interrupted(scene.sink, lambda: scene.replay_dead_letters(0, lenient, stage="schema")),
    )
    result = scene.replay_dead_letters(0, slow, where_broken)
    assert (result.open, result.messages, scene.receipt(0).generation) == (4, 2, 2)
    assert {o for _, o, _ in scene.open(0)} == {4}
    scene.sound()


def test_a_replay_comes_first(scene: DeadLetterScene) -> None:
    """A replay of dead letters begins again if the window itself was replayed meanwhile."""
    slow = replace(
        scene.pipeline(lenient=True),
        sink=Interrupted(scene.sink, lambda: replay(scene, lenient=False)),
    )
    result = scene.replay_dead_letters(0, slow)
    receipt = scene.receipt(0)
    assert (result.messages, receipt.generation) == (2, 2)
    assert receipt.dead_replay is not None
    assert receipt.dead_replay.read_by == receipt.dead_replay.replayed_attempt
    scene.sound()


def test_a_window_replay_that_accepts_all_comes_first(scene: DeadLetterScene) -> None:
    """If a replay of the window accepted all chosen messages meanwhile, no dead letter
    is replayed.
    """
    slow = replace(
        scene.pipeline(lenient=True),
        sink=Interrupted(scene.sink, lambda: replay(scene, lenient=True, model="Looser")),
    )
    result = scene.replay_dead_letters(0, slow, stage="schema")
    assert (result.messages, scene.receipt(0).generation, len(scene.open(0))) == (0, 1, 2)
    scene.sound()


def test_a_dead_replay_comes_first(scene: DeadLetterScene) -> None:
    """A window's replay that is overtaken by a replay of dead letters writes nothing.

    The generation that it wanted to write exists already, so the replayed messages stay.
    """
    scene.expect()
    pipeline = scene.pipeline(lenient=True)
    slow = replace(
        pipeline,
        sink=Interrupted(
            scene.sink, lambda: scene.replay_dead_letters(0, pipeline, repair, stage="value")
        ),
    )
    result = run(slow, hour(0), Request("replay", replace=True))
    assert (result.recovered, scene.receipt(0).generation) == (True, 1)
    scene.sound()
    run(pipeline, hour(1), Request("replay", replace=True))
    scene.sound()


def test_others_who_never_stop(memory_scene: DeadLetterScene) -> None:
    """A replay of dead letters that is overtaken each time gives up after some tries.

    It has committed nothing.
    """
    pipeline = memory_scene.pipeline(lenient=True)
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        run(memory_scene.pipeline(), hour(0), Request(f"replay {turns}", replace=True))

    class Always(Interrupted):
        def commit(self, receipt: Receipt, staged: Any) -> Outcome:
            self._meanwhile = turn
            return super().commit(receipt, staged)

    with pytest.raises(
        UnreachableError, match=f"in each of {TRIES} attempts, another run committed"
    ):
        memory_scene.replay_dead_letters(0, replace(pipeline, sink=Always(memory_scene.sink, turn)))
    assert turns == TRIES
    assert memory_scene.receipt(0).dead_replay is None
    memory_scene.sound()


@pytest.mark.some(1)
@pytest.mark.sampled(2, of=20)
def test_random_histories(
    part: int, dice: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replays in any order, with crashes, keep each message exactly once after each step.

    The replays are of dead letters or of the window, with one schema or another.
    """
    scene = DeadLetterScene(tmp_path, dice.choice(["memory", "sqlite"]))
    scene.fill(0)
    scene.run(0)
    scene.expect()
    for step in range(12):
        schema = {"lenient": dice.random() < 0.5, "model": dice.choice(["Thing", "Looser"])}
        chosen = dice.choice([{}, {"stage": "value"}, {"reason": "wrong_type"}, {"stage": "rules"}])
        point = dice.choice([None, *POINTS])
        if point is not None:
            monkeypatch.setenv("WINDROW_CRASH", f"{point}:raise")
        with suppress(CrashError, RefusedError):
            if dice.random() < 0.3:
                replay_request = Request(
                    f"replay {step}", replace=True, accept_fewer=dice.random() < 0.5
                )
                run(scene.pipeline(**schema), hour(0), replay_request)
            else:
                scene.replay_dead_letters(
                    0, scene.pipeline(**schema), dice.choice([None, where_broken]), **chosen
                )
        monkeypatch.delenv("WINDROW_CRASH", raising=False)
        assert scene.verdict().ok, (
            f"part {part}, step {step}: {schema} {chosen} {point}: {scene.verdict()}"
        )
    scene.replay_dead_letters(0, scene.pipeline(lenient=True, model="Looser"), where_broken)
    assert scene.open(0) == []
    scene.sound()


# --------------------------------------------------------------------------------------------------


def replay(scene: DeadLetterScene, *, accept_fewer: bool = False, **over: Any) -> Any:
    """Replaces the first hour."""
    return run(
        scene.pipeline(**over),
        hour(0),
        Request(f"replay {over}", replace=True, accept_fewer=accept_fewer),
    )


def test_a_replay_of_what_todays_schema_accepted(scene: DeadLetterScene) -> None:
    """A window's replay decodes the log again, so the schema of the replay decides.

    With today's schema the replayed messages are rows; with the old schema they are dead
    letters.
    """
    scene.replay_dead_letters(0, scene.pipeline(lenient=True))
    rows = scene.ids()
    replay(scene, lenient=True)
    assert scene.ids() == rows
    assert scene.receipt(0).dead_replay is None
    scene.sound()
    scene.replay_dead_letters(0, scene.pipeline(lenient=True, model="Looser"), stage="rules")
    replay(scene)
    assert (reasons(scene), scene.receipt(0).generation) == (BEFORE, 4)
    scene.sound()


def test_a_replay_does_not_undo_edits_unasked(scene: DeadLetterScene) -> None:
    """A window's replay that would undo edits is refused before it reads.

    The log doesn't have the edits. With `accept_fewer`, the edited messages become dead letters
    again.
    """
    scene.expect()
    scene.replay_dead_letters(0, scene.pipeline(), repair, stage="value")
    scene.replay_dead_letters(0, scene.pipeline(lenient=True))
    committed_before = scene.sink.look(hour(0))
    with pytest.raises(RefusedError, match="holds 2 messages edited for a dead-letter replay"):
        replay(scene)
    assert scene.sink.look(hour(0)) == committed_before
    replay(scene, accept_fewer=True)
    assert reasons(scene) == BEFORE
    scene.sound()
    scene.replay_dead_letters(0, scene.pipeline(), repair, stage="value")
    assert [scene.ids()[hour(0).key, p, 1] for p in (0, 1)] == [[1001], [1001]]
    scene.sound()


# --------------------------------------------------------------------------------------------------


def test_a_receipt_says_which_dead_replay_made_it(memory_scene: DeadLetterScene) -> None:
    """A receipt of dead letters' replay has an entry `dead_replay`, and survives JSON unchanged.

    Otherwise the entry is null.
    """
    plain = memory_scene.receipt(0)
    assert json.loads(to_json(plain))["dead_replay"] is None
    memory_scene.replay_dead_letters(0, memory_scene.pipeline(lenient=True))
    assert from_json(to_json(memory_scene.receipt(0)), Receipt) == memory_scene.receipt(0)
    assert json.loads(to_json(memory_scene.receipt(0)))["dead_replay"] == {
        "of": plain.attempt,
        "read_by": plain.attempt,
        "messages": 2,
        "edited": 0,
        "pins": [],
    }


def test_a_lost_ledger_and_a_lost_receipt(tmp_path: Path) -> None:
    """A ledger rebuilt from a replayed window's receipt equals the lost one.

    A receipt restored from the ledger equals the lost one, too.
    """
    scene = DeadLetterScene(tmp_path, "delta")
    scene.fill(0, 1)
    scene.run(0, 1)
    scene.expect()
    scene.replay_dead_letters(0, scene.pipeline(lenient=True), repair, stage="value")
    (tmp_path / "state.db").unlink()
    pipeline = scene.pipeline()
    assert rebuild("things", pipeline.sink, pipeline.ledger).windows == 2
    scene.sound()
    newest = max((tmp_path / "table" / "_windrow" / "receipts").glob("2026-01-05T00_00_00Z.1.*"))
    newest.unlink()
    scene.sink = type(scene.sink)(str(tmp_path / "table"), scene.sink.schema)
    assert restore("things", scene.sink, scene.pipeline().ledger, dry_run=False).windows == (
        hour(0).key,
    )
    scene.sound()
    assert scene.replay_dead_letters(0, scene.pipeline(lenient=True)).messages == 2
    scene.sound()


def test_a_dead_replay_after_compaction(tmp_path: Path) -> None:
    """Delta's own compaction of both tables, before and after a replay, changes nothing."""
    from deltalake import DeltaTable

    scene = DeadLetterScene(tmp_path, "delta")
    scene.fill(0, 1)
    scene.run(0, 1)
    for folder in ("table", "table_dead"):
        DeltaTable(str(tmp_path / folder)).optimize.compact()
    scene.replay_dead_letters(0, scene.pipeline(lenient=True))
    for folder in ("table", "table_dead"):
        DeltaTable(str(tmp_path / folder)).optimize.compact()
    assert [f for f in scene.verified().findings if f.level == "wrong"] == []
    assert scene.replay_dead_letters(0, scene.pipeline(lenient=True, model="Looser")).messages == 2
    assert [f for f in scene.verified().findings if f.level == "wrong"] == []


def test_kinds_of_wards() -> None:
    """The tests cover every kind of table."""
    assert set(Kind.__args__) == {"memory", "delta", "sqlite"}  # type: ignore[attr-defined]
