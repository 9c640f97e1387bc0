"""The commands: what they print, in both forms, and the exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tests.cli.conftest import START, Stage, hour
from tests.commands import with_spec
from tests.registry.server import RegistryServer
from windrow.ingest import assemble as assembly
from windrow.ingest.cli.main import app
from windrow.ingest.errors import UnreachableError
from windrow.ingest.model.boundary import HOW_WORDS, How, TopicPartition
from windrow.ingest.registry.client import client_of
from windrow.ingest.runner.task import SplitTask

SECRET = "secret-payload"

ROOT = Path(__file__).parents[2]
TP0 = TopicPartition("shop.things", 0)


def test_plan_shows_and_freezes_nothing(stage: Stage) -> None:
    """A plan tells each split's ends and how they were found; it can be asked twice,
    and a later run still decides for itself.
    """
    first = stage.json("plan", stage.spec, "--window", hour(1))
    (plan,) = first["plans"]
    assert (plan["window"], plan["end"], plan["frozen"]) == (hour(1), hour(2), [])
    assert [
        (p["partition"], p["start"], p["stop"], p["messages_at_most"], p["splits"])
        for p in plan["partitions"]
    ] == [
        (0, 3, 6, 3, 1),
        (1, 2, 4, 2, 1),
    ]
    assert {p["start_how"] for p in plan["partitions"]} == {"settled"}
    assert stage.json("plan", stage.spec, "--window", hour(1)) == first
    assert not (stage.folder / "lake").exists()


def test_plan_says_what_is_frozen(stage: Stage) -> None:
    """After a run of the window before, the shared boundary is frozen; after its own, the plan."""
    stage.json("run", stage.spec, "--window", hour(0))
    assert stage.json("plan", stage.spec, "--window", f"{hour(0)}/{hour(2)}")["plans"][1][
        "frozen"
    ] == ["start"]
    stage.json("run", stage.spec, "--window", hour(1))
    assert stage.json("plan", stage.spec, "--window", hour(1))["plans"][0]["frozen"] == [
        "start",
        "end",
        "plan",
    ]


def test_plan_for_people(stage: Stage) -> None:
    """Without --json it is a table of topic-partitions, which says in words how offsets were found:
    for each way that a boundary may have.
    """
    assert set(HOW_WORDS) == set(get_args(How))
    result = stage.call("plan", stage.spec, "--window", hour(0))
    assert result.exit_code == 0
    assert "shop.things[1]" in result.stdout
    assert "nothing frozen yet" in result.stdout
    assert "timestamps" in result.stdout
    assert "settled" not in result.stdout


def test_plan_refuses_what_a_run_would_miss_of_the_registry(
    stage: Stage, schema_registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry's extra that isn't installed, and a registry that doesn't answer, are
    told by plan in the words of run.
    """
    stage.write(f"topic: shop.things, registry: {{url: '{schema_registry.url}', retries: 0}}")
    spec = Path(stage.spec)
    spec.write_text(spec.read_text().replace("decode: {", "decode: {format: avro-confluent, "))
    schema_registry.register(
        "shop.things-value", '{"type": "record", "name": "Thing", "fields": []}'
    )
    assert stage.json("plan", stage.spec, "--window", hour(0))["plans"]

    def error_of(command: str, code: int) -> str:
        return str(stage.json(command, stage.spec, "--window", hour(0), code=code)["error"])

    with monkeypatch.context() as without:
        client_of.cache_clear()
        without.setitem(sys.modules, "confluent_kafka.schema_registry", None)
        assert error_of("plan", 2) == error_of("run", 2)
        assert "pip install 'windrow-ingest[registry]'" in error_of("plan", 2)
    schema_registry.stop()
    assert error_of("plan", 3) == error_of("run", 3)


def test_run_commits_once(stage: Stage) -> None:
    """A range of windows is committed in order; the second time each is reported and
    nothing is written.
    """
    windows = f"{hour(0)}/{hour(3)}"
    first = stage.json("run", stage.spec, "--window", windows)["windows"]
    assert [(w["recovered"], w["committed"]["receipt"]["counts"]["valid"]) for w in first] == [
        (False, 4),
        (False, 4),
        (False, 0),
    ]
    second_runs = stage.json("run", stage.spec, "--window", windows)["windows"]
    assert [w["recovered"] for w in second_runs] == [True] * 3
    assert [w["committed"] for w in second_runs] == [w["committed"] for w in first]


def test_dagsters_section_is_read_and_left_alone(stage: Stage) -> None:
    """`plan`, `doctor` and `run` do the same with the section as without it, also where its Spark
    isn't there; a wrong value in it is told as any other.
    """
    spec = Path(stage.spec)
    without, doctor = stage.json("plan", stage.spec, "--window", hour(0)), _doctor(stage)
    section = "{key: bank/things, pool: a, retries: 9, spark: {connect: 'sc://127.0.0.1:1'}}"
    written = spec.read_text()
    spec.write_text(f"{written}dagster: {section}\n")
    assert stage.json("plan", stage.spec, "--window", hour(0)) == without
    assert _doctor(stage) == doctor
    [window] = stage.json("run", stage.spec, "--window", hour(0))["windows"]
    assert not window["recovered"]
    spec.write_text(f"{written}dagster: {{pool: a b}}\n")
    refused = stage.call("plan", stage.spec, "--window", hour(0))
    assert (refused.exit_code, "dagster.pool: must not have spaces" in refused.output) == (2, True)


def _doctor(stage: Stage) -> tuple[int, list[str]]:
    """The exit code, and the names of what was looked at."""
    result = stage.call("doctor", stage.spec, "--json")
    return result.exit_code, [check["name"] for check in json.loads(result.stdout)["checks"]]


def test_run_for_people(stage: Stage) -> None:
    """People get a line per window, with its offsets and whether it was there before."""
    result = stage.call("run", stage.spec, "--window", hour(0))
    assert result.exit_code == 0
    assert "0: 0..3  1: 0..2" in result.stdout
    assert "committed already" in stage.call("run", stage.spec, "--window", hour(0)).stdout


def on_a_terminal(columns: int, *arguments: str) -> str:
    """What a command writes to a terminal of so many columns, without its colours."""
    terminal, program = pty.openpty()
    termios.tcsetwinsize(program, (25, columns))
    env = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(
        [sys.executable, "-m", "windrow.ingest.cli.main", *arguments],
        env=env | {"TERM": "xterm", "PYTHONPATH": str(ROOT)},
        stdin=program,
        stdout=program,
        stderr=program,
    ) as process:
        os.close(program)
        output = b""
        with suppress(OSError):  # its other end is closed
            while piece := os.read(terminal, 65536):
                output += piece
        os.close(terminal)
        assert process.wait(60) == 0, output.decode()
    return re.sub(r"\x1b\[[0-9;]*m", "", output.decode())


@pytest.mark.slow
def test_a_narrow_terminal_cuts_no_word(stage: Stage) -> None:
    """Each key, name and number of a table is whole on a terminal, and no line is longer
    than that: the key is told to the next command.
    """
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    stage.json("replay", stage.spec, "--window", hour(0))
    for command in (["show"], ["dead", "show"]):
        wide = stage.call(*with_spec(command, stage.spec)).stdout
        words = set(re.split(r"[\s┏━┳┓┃┡╇┩│└─┴┘]+", wide)) - {""}
        assert hour(1) in words
        for columns in (60, 80, 120):
            narrow = on_a_terminal(columns, *with_spec(command, stage.spec))
            assert {word for word in words if word not in narrow} == set()
            assert max(map(len, narrow.splitlines())) <= columns


def test_a_table_in_a_file_is_a_line_a_row(stage: Stage) -> None:
    """However wide it is: nothing is cut, and each message is on one line."""
    for text in (b"a" * 99, b"b" * 99):
        timestamp = START + timedelta(hours=1)
        stage.broker.produce(TopicPartition("shop.things", 0), text, key=text, timestamp=timestamp)
    lines = stage.call("peek", stage.spec).stdout.splitlines()
    assert [[line.count(c * 9) for line in lines if c * 9 in line] for c in "ab"] == [[22], [22]]


def test_what_was_done_is_told_beside_the_error(stage: Stage) -> None:
    """Where a later window can't be run, the earlier ones are in the result, in both
    forms, and the exit code is the error's.
    """
    stage.now = START + timedelta(hours=1, minutes=10)
    document = stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}", code=4)
    assert [w["committed"]["receipt"]["plan"]["window"]["start"] for w in document["windows"]] == [
        hour(0)
    ]
    assert document["error"]["kind"] == "NotClosedError"
    assert "Run it at 2026-01-05T02:05:00Z or later." in document["error"]["message"]
    result = stage.call("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    assert hour(0) in result.stdout
    assert "is not closed yet" in result.stderr


def test_a_refused_window_is_passed_over_where_that_is_said(stage: Stage) -> None:
    """With --keep-going the windows behind a refused one are run, and it is named;
    without, those that were not tried are named.
    """
    stage.produce(4, b"secret-poison", b"secret-poison")
    stage.produce(5, b'{"id": 1}')
    arguments = ("run", stage.spec, "--window", f"{hour(3)}/{hour(6)}")
    stopped = stage.json(*arguments, code=1)
    assert len(stopped["windows"]) == 1
    assert stopped["error"]["message"].endswith(f" Not tried: {hour(5)}.")
    going = stage.json(*arguments, "--keep-going", code=1)
    assert [w["committed"]["receipt"]["plan"]["window"]["start"] for w in going["windows"]] == [
        hour(3),
        hour(5),
    ]
    assert going["error"]["message"].startswith(
        f"1 of 3 windows refused: {hour(4)}. The others are committed."
    )
    assert "2 of 2 messages refused: JSON is malformed" in going["error"]["message"]
    stage.write(window="grid: batch")
    assert (
        "blocks all later ones"
        in stage.json("run", stage.spec, "--keep-going", code=2)["error"]["message"]
    )


def _too_many_dead(stage: Stage) -> None:
    spec = Path(stage.spec)
    spec.write_text(spec.read_text().replace("ratio: 0.6", "ratio: 0"))


def _expired(stage: Stage) -> None:
    stage.broker.delete_records(TP0, 4)


def _open(stage: Stage) -> None:
    stage.now = START


def _wrong_spec(stage: Stage) -> None:
    Path(stage.spec).write_text("id: x\n")


def _down(stage: Stage) -> None:
    def down(*_: Any) -> None:
        raise UnreachableError("the cluster does not answer", "plan", "Start it.")

    stage.broker.first_at_or_after = down  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("trouble", "code", "kind"),
    [
        (_too_many_dead, 1, "DeadLetterLimitError"),
        (_expired, 1, "DataLossError"),
        (_wrong_spec, 2, "SpecMistakesError"),
        (_down, 3, "UnreachableError"),
        (_open, 4, "NotClosedError"),
    ],
)
def test_exit_codes(stage: Stage, trouble: Any, code: int, kind: str) -> None:
    """Refused, bad spec, unreachable and not closed each have their exit code, one
    paragraph on stderr, and no stack trace.
    """
    trouble(stage)
    result = stage.call("run", stage.spec, "--window", hour(0), "--json")
    assert result.exit_code == code
    error = json.loads(result.stdout)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)
    assert error["message"].strip() in result.stderr
    assert "Traceback" not in result.stderr
    assert "secret" not in result.output


@pytest.mark.parametrize(
    ("window", "says"),
    [
        ("yesterday", "is not an instant"),
        ("2026-01-05T02:00:00Z/2026-01-05T02:00:00Z", "its end isn't later than its start"),
        ("2026-01-05T00:30:00Z", "is not on the hourly grid"),
        ("2026-01-05T02:00:00Z/2026-01-05T01:00:00Z", "has no window in it"),
        ("2026-01-04T23:00:00Z", "lies before the pipeline's start, 2026-01-05T00:00:00Z"),
        (
            "2026-01-05T00:00:00Z/",
            "or for one window its start alone: 2026-01-05T00:00:00Z.",
        ),
        ("/2026-01-05T00:00:00Z", "says only one end of several windows"),
        (
            "2026-01-05T00:00:00Z..2026-01-05T02:00:00Z",
            "several windows as 2026-01-05T00:00:00Z/2026-01-05T02:00:00Z",
        ),
    ],
)
def test_wrong_window_is_usage(stage: Stage, window: str, says: str) -> None:
    """A W that names no window of this pipeline is a mistake of usage."""
    result = stage.call("run", stage.spec, "--window", window)
    assert result.exit_code == 2
    assert says in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["fly"],
        ["replay", "x.yaml"],
        ["run", "x.yaml", "--drain", "--window", "7"],
        ["show", "x.yaml", "--payload"],
        ["doctor", "--rebuild-ledger"],
        ["show", "x", "--limit", "0"],
        ["peek", "x", "--limit", "0"],
        ["peek", "x", "--isolation", "serializable"],
    ],
)
def test_wrong_usage(stage: Stage, arguments: list[str]) -> None:
    """Wrong arguments end with 2, too."""
    assert stage.call(*arguments).exit_code == 2


def single_options() -> Iterator[tuple[list[str], str]]:
    """Every option that takes one value, with the words of its command."""
    waiting: list[tuple[list[str], Any]] = [([], get_command(app))]
    while waiting:
        words, command = waiting.pop()
        waiting += [
            ([*words, name], subcommand)
            for name, subcommand in getattr(command, "commands", {}).items()
        ]
        for option in command.params:
            if option.param_type_name == "option" and not (option.is_flag or option.multiple):
                yield words, option.opts[0]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        pytest.param(*words_and_option, id=" ".join([*words_and_option[0], words_and_option[1]]))
        for words_and_option in single_options()
    ],
)
def test_no_option_is_dropped_for_a_second_one(words: list[str], option: str) -> None:
    """An option that takes one value is refused where it stands twice: the last one
    alone would be done, with exit code 0.
    """
    result = CliRunner().invoke(app, [*words, option, "1", f"{option}=2", "--help"])
    assert result.exit_code == 2
    assert f"{option} may be given once" in result.output


def test_several_windows_are_told_how(stage: Stage) -> None:
    """Who names two windows by two options reads the form for both, and none is run."""
    result = stage.call("run", stage.spec, "--window", hour(0), "--window", hour(1))
    assert result.exit_code == 2
    assert "START/END for several" in " ".join(result.output.replace("│", "").split())
    assert stage.json("show", stage.spec)["windows"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["run", "--conf", "spark.ui.enabled=true", "--conf", "spark.ui.enabled=false"],
            "NAME once",
        ),
        (["run", "--master", "local[x]"], "this machine is local, local[4]"),
        (["replay", "--window", "7", "--master", "local[2"], "this machine is local, local[4]"),
        (["dead"], "a command of windrow dead before it, one of show, replay"),
        ([], "a command of windrow before it"),
    ],
)
def test_usage_says_what_to_write(stage: Stage, arguments: list[str], says: str) -> None:
    """A Spark property that is set twice, a master that is none, and a spec where a command
    belongs, are told.
    """
    result = CliRunner().invoke(app, [*arguments, Path(stage.spec).name], prog_name="windrow")
    assert result.exit_code == 2
    assert says in " ".join(result.output.replace("│", "").split())


def test_debug_shows_the_trace(stage: Stage) -> None:
    """With --debug the stack trace is on stderr, and stdout is still one document."""
    stage.now = START
    result = stage.call("run", stage.spec, "--window", hour(0), "--debug", "--json")
    assert "Traceback" in result.stderr
    assert result.exit_code == json.loads(result.stdout)["error"]["exit_code"] == 4


def test_a_bug_says_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug has an exit code and a place in the document of its own; its text, which
    may quote anything, is for --debug only.
    """

    def broken(*_: Any) -> None:
        raise KeyError("secret-payload")

    monkeypatch.setattr(assembly, "assemble_to_look", broken)
    result = stage.call("run", stage.spec, "--window", hour(0), "--json")
    assert result.exit_code == 70
    assert json.loads(result.stdout)["error"] == {"kind": "KeyError", "exit_code": 70}
    assert "KeyError: this is a bug in windrow" in result.stderr
    assert "--debug" in result.stderr
    assert "secret-payload" not in result.output
    assert "secret-payload" in stage.call("run", stage.spec, "--window", hour(0), "--debug").stderr


def test_a_bug_in_a_worker_is_told_like_any_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug that a task meets ends the command with 70; where it was is said, its text
    never, and --debug shows how it came there.
    """

    def broken(*_: Any) -> None:
        raise KeyError(SECRET)  # a stack trace shows this line

    monkeypatch.setattr(SplitTask, "__call__", broken)
    result = stage.call("run", stage.spec, "--window", hour(0), "--json")
    assert result.exit_code == 70
    error = json.loads(result.stdout)["error"]
    assert (error["kind"], error["exit_code"], error["topic"]) == ("BugError", 70, "shop.things")
    assert "KeyError: this is a bug in windrow" in result.stderr
    assert "--debug" in result.stderr
    assert "in broken" not in result.stderr
    debugged = stage.call("run", stage.spec, "--window", hour(0), "--debug")
    assert "in broken" in debugged.stderr
    assert SECRET not in result.output + debugged.output


def test_help_names_the_exit_codes(stage: Stage) -> None:
    """The help says what each exit code means, a bug's too."""
    assert "70 a bug in windrow" in " ".join(stage.call("--help").stdout.split())


def test_prints_of_libraries_stay_off_stdout(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a library prints while it works, stdout is one JSON document."""

    def chatty(*arguments: Any) -> Any:
        print("warming up")
        return stage.assemble_to_look(*arguments)

    monkeypatch.setattr(assembly, "assemble_to_look", chatty)
    assert stage.json("run", stage.spec, "--window", hour(0))["windows"]


def test_replay_replaces(stage: Stage) -> None:
    """A replay reads the frozen offsets again as the next generation; the same request
    asks for one replacement only.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    first = stage.json("replay", stage.spec, "--window", hour(0), "--request", "r1")["windows"][0]
    assert (first["recovered"], first["committed"]["receipt"]["generation"]) == (False, 1)
    retried = stage.json("replay", stage.spec, "--window", hour(0), "--request", "r1")["windows"][0]
    assert (retried["recovered"], retried["committed"]["receipt"]["generation"]) == (True, 1)
    next_replay = stage.json("replay", stage.spec, "--window", hour(0))["windows"][0]
    assert next_replay["committed"]["receipt"]["generation"] == 2


def test_replay_says_what_was_replaced(stage: Stage) -> None:
    """A replacement is told as one, with its generation; a window that wasn't there is
    committed, and a repeated request writes nothing.
    """

    def says(*arguments: str) -> str:
        line = next(line for line in stage.call(*arguments).stdout.splitlines() if hour(0) in line)
        return line.strip("│ ").split("│")[1].strip()

    replay = ("replay", stage.spec, "--window", hour(0), "--request")
    assert says(*replay, "r1") == "committed"
    assert says(*replay, "r1") == "committed already"
    assert says(*replay, "r2") == "replaced, generation 1"
    assert says(*replay, "r2") == "committed already, generation 1"
    assert says(*replay, "r3") == "replaced, generation 2"
    assert says("run", stage.spec, "--window", hour(0)) == "committed already, generation 2"


def test_replay_refuses_fewer(stage: Stage) -> None:
    """A replay that sees fewer messages is refused, unless fewer is accepted."""
    stage.json("run", stage.spec, "--window", hour(0))
    stage.broker.remove(TP0, [1])
    assert (
        stage.json("replay", stage.spec, "--window", hour(0), code=1)["error"]["kind"]
        == "DataLossError"
    )
    accepted = stage.json("replay", stage.spec, "--window", hour(0), "--accept-fewer")["windows"][0]
    assert accepted["committed"]["receipt"]["counts"]["read"] == 4


def test_show_windows(stage: Stage) -> None:
    """Committed windows in order, the newest ones if there are too many, or those that
    are asked for.
    """
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(3)}")

    def starts(*arguments: str) -> list[str]:
        shown = stage.json("show", stage.spec, *arguments)["windows"]
        return [w["receipt"]["plan"]["window"]["start"] for w in shown]

    assert starts() == [hour(0), hour(1), hour(2)]
    assert starts("--limit", "2") == [hour(1), hour(2)]
    assert starts("--window", hour(1)) == [hour(1)]
    text = stage.call("show", stage.spec, "--limit", "2").stdout
    assert "1 older ones are not shown" in text
    assert stage.json("show", stage.spec, "--limit", "2")["left_out"] is True
    assert hour(0) not in text


def test_fields_that_no_column_is_for_are_told(stage: Stage) -> None:
    """By the run that read them, and by the receipts later: the names, and how many messages."""
    stage.produce(7, b'{"id": 1, "issue": {"id": 7}}', b'{"id": 2}', b'{"id": 3, "a\\u001bb": 1}')
    ran = stage.call("run", stage.spec, "--window", hour(7)).stdout
    shown = stage.call("show", stage.spec, "--window", hour(7)).stdout
    words = (
        "2 messages with fields that no column is for; of the first 1,000 of a split: 'issue' (1),"
        " 'a\\x1bb' (1)"
    )
    for text in (ran, shown):
        assert words in " ".join(text.split())
    (window,) = stage.json("show", stage.spec, "--window", hour(7))["windows"]
    counts = window["receipt"]["counts"]
    assert (counts["read"], counts["dead"], counts["ignored"]) == (3, 0, 2)


def test_show_nothing(stage: Stage) -> None:
    """Before the first run there is nothing to show, and that is no error."""
    assert stage.json("show", stage.spec) == {
        "pipeline": "things",
        "windows": [],
        "left_out": False,
        "uncommitted": [],
        "done": False,
    }
    assert stage.json("dead", "show", stage.spec) == {
        "pipeline": "things",
        "dead": [],
        "left_out": False,
        "refused": [],
    }
    assert "Nothing is committed yet." in stage.call("show", stage.spec).stdout
    assert (
        f"Nothing is committed in {hour(1)}."
        in stage.call("show", stage.spec, "--window", hour(1)).stdout
    )
    none = stage.call("dead", "show", stage.spec, "--window", hour(1), "--attempt", "nosuch").stdout
    assert f"There are no dead letters of attempt nosuch in {hour(1)}." in none


def test_show_dead_of_a_refused_replay(stage: Stage) -> None:
    """The command that the refusal names shows what the replay refused, not what the committed
    attempt did.
    """
    stage.json("run", stage.spec, "--window", hour(0))
    schema = stage.folder / "schema.py"
    schema.write_text(schema.read_text().replace("pl.Int64", "pl.Int64 = pa.Field(ge=100)"))
    error = stage.json("replay", stage.spec, "--window", hour(0), code=1)["error"]["message"]
    named = re.search(r"windrow (dead show \S+ --window \S+ --attempt \w+)", error)
    assert named is not None, error
    assert len(stage.json(*named[1].split())["dead"]) == 5
    assert len(stage.json("dead", "show", stage.spec, "--window", hour(0))["dead"]) == 1


def test_show_dead_of_a_refused_window(stage: Stage) -> None:
    """A window that was refused says what to fix; its newest attempt's dead letters
    are shown where it is named, else it is pointed to.
    """
    _too_many_dead(stage)
    for _ in range(2):
        error = stage.json("run", stage.spec, "--window", hour(0), code=1)["error"]["message"]
    assert (
        "1 of 5 messages refused: JSON is malformed: Expecting value (1). First: shop.things[0]@2. "
        in error
    )
    assert f"windrow dead show {stage.spec} --window {hour(0)})" in error
    named = stage.json("dead", "show", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    assert [(d["window"], d["partition"], d["offset"]) for d in named["dead"]] == [(hour(0), 0, 2)]
    ((window, attempt),) = [(r["window"], r["attempt"]) for r in named["refused"]]
    assert window == hour(0)
    text = stage.call("dead", "show", stage.spec, "--window", hour(0)).stdout
    assert f"{hour(0)} is not committed; these are of its newest attempt, {attempt}." in text
    assert (
        stage.json("dead", "show", stage.spec, "--window", hour(0), "--attempt", attempt)["dead"]
        == named["dead"]
    )
    all_dead = stage.json("dead", "show", stage.spec)
    assert (all_dead["dead"], all_dead["refused"]) == ([], named["refused"])
    text = stage.call("dead", "show", stage.spec).stdout
    assert (
        f"{hour(0)} is not committed; see what was refused: windrow dead show {stage.spec} --window"
        f" {hour(0)}" in text
    )
    Path(stage.spec).write_text(Path(stage.spec).read_text().replace("ratio: 0}", "ratio: 0.6}"))
    stage.json("run", stage.spec, "--window", hour(0))
    shown = stage.json("dead", "show", stage.spec)
    assert ([d["offset"] for d in shown["dead"]], shown["refused"]) == ([2], [])


def test_show_dead(stage: Stage) -> None:
    """Dead letters come with place and reason; what they hold only if it is asked for."""
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    dead = stage.json("dead", "show", stage.spec)["dead"]
    assert [(d["window"], d["topic"], d["partition"], d["offset"], d["stage"]) for d in dead] == [
        (hour(0), "shop.things", 0, 2, "value"),
        (hour(1), "shop.things", 0, 5, "value"),
    ]
    assert all(d["reason"] and "key" not in d and "value" not in d for d in dead)
    assert "secret" not in stage.call("dead", "show", stage.spec).output
    cut = stage.json("dead", "show", stage.spec, "--limit", "1")
    assert (len(cut["dead"]), cut["left_out"]) == (1, True)
    assert stage.json("dead", "show", stage.spec, "--limit", "2")["left_out"] is False
    assert (
        "There are more, which are not shown"
        in stage.call("dead", "show", stage.spec, "--limit", "1").stdout
    )
    (second,) = stage.json("dead", "show", stage.spec, "--payload", "--window", hour(1))["dead"]
    assert second["value"] == "c2VjcmV0LXBvaXNvbg=="
    assert "secret-poison" in stage.call("dead", "show", stage.spec, "--payload").stdout


def test_control_characters_of_a_payload_stay_out_of_the_terminal(stage: Stage) -> None:
    """A message that holds escape sequences is shown as text."""
    stage.produce(5, b"\x1b[31mred[bold]", b'{"id": 1}')
    stage.json("run", stage.spec, "--window", hour(5))
    shown = stage.call("dead", "show", stage.spec, "--payload").stdout
    assert "\x1b[31m" not in shown
    assert r"\x1b[31mred[bold]" in shown


def test_verify(stage: Stage) -> None:
    """A healthy pipeline verifies with 0; a damaged one with 1, saying where."""
    stage.json("run", stage.spec, "--window", f"{hour(0)}/{hour(2)}")
    assert stage.json("verify", stage.spec) == {"windows": 2, "rows": 8, "findings": []}
    assert "nothing is wrong" in stage.call("verify", stage.spec).stdout
    (stage.folder / ".windrow" / "state.db").unlink()
    document = stage.json("verify", stage.spec, code=1)
    assert {f["about"] for f in document["findings"]} == {"ledger"}


def test_verify_says_what_it_could_not_check(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the broker down, nothing is wrong as far as it was looked, and the summary
    says that not all was.
    """
    stage.json("run", stage.spec, "--window", hour(0))

    def down(*_: Any) -> None:
        raise UnreachableError("the cluster does not answer", "verify", "Start it.")

    monkeypatch.setattr(stage.broker, "topics", down)
    assert (
        "nothing is wrong; 1 thing could not be checked" in stage.call("verify", stage.spec).stdout
    )


def test_version(stage: Stage) -> None:
    """`--version` names the distribution and its version."""
    assert (
        stage.call("--version").stdout
        == f"windrow {metadata.version('windrow-ingest')}, of the distribution windrow-ingest\n"
    )


MISTYPED = """
import sys
from typer.testing import CliRunner
from windrow.ingest.cli.main import app

for command in ("plan", "run", "replay", "rebase", "peek", "lag", "show", "verify"):
    window = ["--window", "2026-01-05T00:00:00Z"] if command == "replay" else []
    result = CliRunner().invoke(app, [command, "nosuch.yaml", *window])
    assert result.exit_code == 2, command
    assert "nosuch.yaml" in result.stderr, command
    assert "pyarrow" not in sys.modules, command
"""


@pytest.mark.slow
def test_mistyped_spec_loads_nothing() -> None:
    """A spec that doesn't exist is refused before anything heavy is loaded, with 2."""
    subprocess.run([sys.executable, "-c", MISTYPED], cwd=ROOT, check=True, timeout=120)


def test_lost_ledger_comes_back(stage: Stage) -> None:
    """With the ledger gone, a run is refused; rebuilt, it reports the committed windows
    and reads nothing twice.
    """
    windows = f"{hour(0)}/{hour(2)}"
    stage.json("run", stage.spec, "--window", windows)
    (stage.folder / ".windrow" / "state.db").unlink()
    assert (
        stage.json("run", stage.spec, "--window", windows, code=1)["error"]["kind"] == "OwnerError"
    )
    assert stage.json("doctor", stage.spec, "--rebuild-ledger")["windows"] == 2
    assert [
        w["recovered"] for w in stage.json("run", stage.spec, "--window", windows)["windows"]
    ] == [True, True]
    assert stage.json("verify", stage.spec)["findings"] == []


def test_env_file(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory's .env fills what the environment leaves open, and
    overrides nothing.
    """
    monkeypatch.setenv("THINGS_SINK", "from-environment")
    monkeypatch.setenv("THINGS_ID", "")  # noted by monkeypatch, so that it is gone after the test
    monkeypatch.delenv("THINGS_ID")
    (stage.folder / ".env").write_text("THINGS_ID=from-file\nTHINGS_SINK=from-file\n")
    text = (
        Path(stage.spec)
        .read_text()
        .replace("id: things", "id: '{{ env.THINGS_ID }}'")
        .replace("lake/things", "'{{ env.THINGS_SINK }}'")
    )
    Path(stage.spec).write_text(text)
    assert stage.json("run", stage.spec, "--window", hour(0))["pipeline"] == "from-file"
    assert (stage.folder / "from-environment").is_dir()
