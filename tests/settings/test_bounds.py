"""Hostile and unlucky spec files raise SpecError with a line, quickly and in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import SpecError
from windrow.ingest.model.grid import parse_windows
from windrow.ingest.settings.yamltext import DEPTH_MAX, SIZE_MAX

GOOD = """\
id: orders
source: {bootstrap_servers: "localhost:9092", topic: shop.orders}
window: {grid: hourly, start: 2026-01-01T00:00:00Z}
decode: {schema: "my.schemas:Order"}
sink: {path: lake}
"""
ROOT = Path(__file__).parents[2]
BOMB = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 10)}]" for n in range(9))
READER = """
import json, resource, signal, sys
from pathlib import Path
from windrow.ingest.errors import SpecError
from windrow.ingest.config.load import load_spec

resource.setrlimit(resource.RLIMIT_AS, (2 * 1024**3,) * 2)
said = {}
for file in Path(sys.argv[1]).iterdir():
    signal.alarm(30)  # ends the process: most of what runs for ever doesn't listen
    try:
        said[file.stem] = repr(load_spec(file))
    except SpecError as error:
        said[file.stem] = str(error)
    except BaseException as error:
        said[file.stem] = f"a bug: {error!r:.200}"
    print(json.dumps([file.stem, said[file.stem]]), flush=True)
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that templates use."""
    monkeypatch.setenv("NAME", "orders")


def load(folder: Path, text: str) -> PipelineSpec:
    """Returns the spec of this text."""
    (folder / "defs.yaml").write_text(text, encoding="utf-8")
    return load_spec(folder / "defs.yaml")


def refused(folder: Path, text: str) -> str:
    """Returns the error of this text."""
    with pytest.raises(SpecError) as caught:
        load(folder, text)
    return str(caught.value)


def changed(old: str, new: str) -> str:
    """Returns the good spec with one part replaced."""
    assert old in GOOD
    return GOOD.replace(old, new)


HOSTILE = {
    "deep": (
        f"{GOOD}x: {'[' * 3000}{']' * 3000}\n",
        f"line 6: nested deeper than {DEPTH_MAX} levels",
    ),
    "laughs": (f"{BOMB}\n{GOOD}", "line 1: an anchor (&...) or an alias (*...) is not read"),
    "half a variable": (
        changed("id: orders", r'''id: "{{ env('\ud800') }}"'''),
        "line 1: id: holds control characters",
    ),
    "digits": (
        changed("id: orders", f"id: {'9' * 5000}"),
        "line 1: id: YAML reads this as a number of 5,000 digits",
    ),
    "memory": (
        changed("orders\n", "\"{{ 'a' * 10**11 }}\"\n"),
        "line 1: id: is not a template that can be used here",
    ),
    "list": (changed("orders\n", '"{{ range(10**9) | list }}"\n'), "line 1: id: is not a template"),
    "format": (
        changed("orders\n", "\"{{ '%1000000000d' | format(1) }}\"\n"),
        "line 1: id: is not a template",
    ),
    "center": (
        changed("orders\n", '"{{ env.NAME | center(10**10) }}"\n'),
        "line 1: id: is not a template",
    ),
    "power": (changed("orders\n", '"{{ 9**9**9 }}"\n'), "line 1: id: is not a template"),
    "loops": (
        changed("orders\n", f'"{"{% for a in range(99999) %}" * 4}x{"{% endfor %}" * 4}"\n'),
        "line 1: id: is not a template",
    ),
    "recursion": (
        changed("orders\n", '"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"\n'),
        "line 1: id: is not a template",
    ),
    "brackets": (
        changed("orders\n", f'"{{{{ {"(" * 50_000} }}}}"\n'),
        "line 1: id: is not a template",
    ),
    "pattern": (
        changed("topic: shop.orders", f"topic_pattern: {'(' * 900}a{')' * 900}"),
        "line 2: source.topic_pattern: ",
    ),
    "repeats": (
        changed("topic: shop.orders", "topic_pattern: 'a{99999999999999999999}'"),
        "line 2: source.topic_pattern: ",
    ),
    "cron": (
        changed("hourly", f"'*/{'9' * 5000} * * * *'"),
        "line 3: window.grid: must be the name of a grid",
    ),
    "last day": (
        changed("2026-01-01", "9999-12-31"),
        "line 3: window.start: 9999-12-31T00:00:00Z lies too far in the future",
    ),
    "outside": (
        changed("2026-01-01T00:00:00Z", "9999-12-31T23:00:00-05:00"),
        "line 3: window.start: lies outside the calendar",
    ),
    "no day": (
        changed("2026-01-01T00:00:00Z", "2026-02-31"),
        "line 3: window.start: is not an instant",
    ),
    "delay": (
        changed("grid: hourly", "grid: hourly, delay: 99999999d"),
        "line 3: window.delay: must not be more than 3650d",
    ),
    "long delay": (
        changed("grid: hourly", f"grid: hourly, delay: {'9' * 5000}s"),
        "line 3: window.delay: must be a duration",
    ),
    "home": (
        changed("path: lake", "path: ~nobody-has-this-name/lake"),
        "line 5: sink.path: begins with ~",
    ),
    "shell": (
        changed("path: lake", "path: $HOME/lake"),
        "line 5: sink.path: has a shell's variable, which is not read: use {{ env.HOME }} or ~",
    ),
    "shell inside": (
        f"{GOOD}state: data/${{USER}}/x.db\n",
        "line 6: state: has a shell's variable",
    ),
    "shell of a lookup": (
        GOOD
        + "transform:\n  steps:\n  - {lookup: a, key: {a: b}, take: {c: d},"
        + " from: {table: $HOME/x}}\n",
        "line 8: transform.steps.0.from.table: has a shell's variable",
    ),
    "state": (f"{GOOD}state: ~nobody-has-this-name/state.db\n", "line 6: state: begins with ~"),
    "folder": (
        changed("id: orders", 'id: ".."'),
        "line 1: id: must be 1 to 100 of a-z A-Z 0-9 . _ -, not only dots",
    ),
    "one slash": (
        changed("path: lake", "path: s3:/bucket/lake"),
        "line 5: sink.path: has one slash where a URL has two: write s3://",
    ),
    "no place": (changed("path: lake", "path: ''"), "line 5: sink.path: must not be empty"),
    "any share": (
        f"{GOOD}limits: {{max_dead_ratio: true}}\n",
        "line 6: limits.max_dead_ratio: must be a number",
    ),
    "one letter": (
        f"{GOOD}limits: {{max_dead_count: true}}\n",
        "line 6: limits.max_dead_count: must be a whole number",
    ),
    "nul": (
        changed("path: lake", r'path: "la\0ke"'),
        "line 5: sink.path: holds control characters",
    ),
    "half": (
        changed("path: lake", r'path: "\ud800"'),
        "line 5: sink.path: holds control characters",
    ),
    "schema": (
        changed("my.schemas:Order", f"{'a' * 5000}.py:Order"),
        "line 4: decode.schema: there is no file",
    ),
    "tag": (
        changed("id: orders", "id: !!int orders"),
        "line 1: a tag, which begins with !, is not read",
    ),
    "binary": (changed("id: orders", "id: 0b_"), "line 1: id: YAML reads 0b_ as a number"),
    "documents": (f"{GOOD}---\n{GOOD}", "line 7: a second document begins here"),
    "merge": (f"{GOOD}<<: {{id: a}}\n", "line 6: <<: unknown key"),
    "keys": ("\n".join(f"k{n}: 1" for n in range(9000)), "and 8,955 more"),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The errors of all hostile texts, from a process with 2 GiB of memory.

    Each text has half a minute.
    """
    folder = tmp_path_factory.mktemp("hostile")
    for name, (text, _) in HOSTILE.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    command, environment = (
        [sys.executable, "-c", READER, str(folder)],
        {
            **os.environ,
            "NAME": "orders",
        },
    )
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_specs(answers: dict[str, str], name: str) -> None:
    """A hostile file raises SpecError with the place, and doesn't exhaust memory, time or stack."""
    assert HOSTILE[name][1] in answers.get(name, "nothing: the process died")


def test_a_file_that_is_no_spec_by_its_size(tmp_path: Path) -> None:
    """A file that is larger than any spec isn't read to its end."""
    assert "is larger than 256 KiB" in refused(tmp_path, GOOD + "#" * SIZE_MAX)
    with pytest.raises(SpecError, match="is larger than 256 KiB"):
        load_spec(Path("/dev/zero"))


def test_a_folder(tmp_path: Path) -> None:
    """A folder raises SpecError that says to name the file in it."""
    with pytest.raises(SpecError, match=r"is a folder. Name the file in it, such as .*defs\.yaml"):
        load_spec(tmp_path)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("010", "the number 8"),
        ("0x10", "the number 16"),
        ("1_000", "the number 1000"),
        ("12:30:00", "the number 45000"),
        ("+5", "the number 5"),
        ("on", "true"),
        ("no", "false"),
        ("Yes", "true"),
        (".inf", "a number"),
    ],
)
def test_what_yaml_reads_otherwise(tmp_path: Path, text: str, read: str) -> None:
    """A name that YAML 1.1 reads as another type raises SpecError; in quotes it is the name."""
    message = refused(tmp_path, changed("shop.orders", text))
    assert (
        f"line 2: source.topic: YAML reads {text} as {read}: put it in quotes if it is a text, or"
        " write" in message
    )
    if ":" not in text and text != "+5":
        assert load(tmp_path, changed("shop.orders", f'"{text}"')).source.topic == text


@pytest.mark.parametrize("text", ["1e3", "2026-01-01", "42", "y", "-1", "null-object", "1.5.2"])
def test_what_yaml_reads_as_it_stands(tmp_path: Path, text: str) -> None:
    """A name that YAML reads unchanged needs no quotes, such as a date or a number."""
    assert load(tmp_path, changed("shop.orders", text)).source.topic == text


@pytest.mark.parametrize(
    ("setting", "old"),
    [("id", "orders\n"), ("sink.path", "lake}"), ("source.topic", "shop.orders")],
)
def test_a_number_that_would_change(tmp_path: Path, setting: str, old: str) -> None:
    """A name that is a number with a point is refused, because YAML would turn 1.10 into 1.1."""
    new = old.replace(old.rstrip("}\n"), "1.10")
    assert f"{setting}: must be a t" in refused(tmp_path, changed(old, new))


@pytest.mark.parametrize(
    ("template", "is_"),
    [
        ("{{ env.NAME }}", "orders"),
        ("{{env.NAME}}-{{ env('NAME') }}", "orders-orders"),
        ('{{ env("UNSET", "a b") }}', "a b"),
        ("{{ env('UNSET', default='x') }}", "x"),
        ("{{ env.UNSET | default('x') }}", "x"),
        ("{{ env('UNSET', '') }}x", "x"),
    ],
)
def test_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, is_: str
) -> None:
    """Each form of a template reads the environment, and the value isn't expanded again."""
    monkeypatch.delenv("UNSET", raising=False)
    assert (
        load(
            tmp_path, changed("sink: {path: lake}", f"sink:\n  path: >-\n    {template}")
        ).sink.path
        == is_
    )
    monkeypatch.setenv("NAME", "{{ env.NAME }}{% x %}")
    assert (
        load(tmp_path, changed("path: lake", 'path: "{{ env.NAME }}"')).sink.path
        == "{{ env.NAME }}{% x %}"
    )


@pytest.mark.parametrize(
    ("grid", "text", "message"),
    [
        ("hourly", "9999-12-31T23:00:00Z", "too far in the future"),
        ("hourly", "9999-12-31T23:00:00-05:00", "outside the calendar"),
        (
            "* * * * *",
            "2026-01-01T00:00:00Z/8999-01-01T00:00:00Z",
            "names more than 100,000 windows",
        ),
        ("batch", "0/999999999", "names more than 100,000 windows"),
    ],
)
def test_windows_without_end(grid: str, text: str, message: str) -> None:
    """A window at the end of the calendar, or too many windows, raise SpecError."""
    with pytest.raises(SpecError, match=message):
        parse_windows("p", grid, text)


def test_a_start_with_another_offset_off_the_grid(tmp_path: Path) -> None:
    """A start that its offset puts off the grid is shown in both zones, with the nearest starts."""
    message = refused(
        tmp_path,
        changed("hourly", "daily").replace("2026-01-01T00:00:00Z", "2026-01-01T00:00:00+02:00"),
    )
    assert (
        "window.start: 2026-01-01T00:00:00+02:00 is 2025-12-31T22:00:00Z, and grids are in UTC. "
        in message
    )
    assert "The nearest starts are 2025-12-31T00:00:00Z or 2026-01-01T00:00:00Z." in message
    assert load(tmp_path, changed("T00:00:00Z", "T02:00:00+02:00")).window.start == datetime(
        2026, 1, 1, tzinfo=UTC
    )


def test_a_misspelled_topic_is_one_mistake(tmp_path: Path) -> None:
    """A misspelled key is one mistake with a suggestion, and not also a missing key."""
    message = refused(tmp_path, changed("topic:", "topik:"))
    assert message.startswith("1 mistake in ")
    assert "line 2: source.topik: unknown key; did you mean topic?" in message


def test_no_stage_behind_a_mistake() -> None:
    """An error about the spec doesn't end with the stage in brackets."""
    assert (
        str(SpecError("The spec is a folder", "spec", "Name the file."))
        == "The spec is a folder. Name the file."
    )
    assert (
        str(SpecError("It is empty", "spec", "Fill it.", "t", 0)) == "It is empty (t[0]). Fill it."
    )
    assert (
        str(SpecError("It is empty", "plan", "Fill it.", "t")) == "It is empty (plan, t). Fill it."
    )
