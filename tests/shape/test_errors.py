"""Errors as data between Spark's workers and the driver, as pickles, and as messages."""

from __future__ import annotations

import ast
import importlib
import pickle
import pkgutil
import re
from itertools import pairwise
from pathlib import Path

import pytest

import windrow.ingest
from tests.command import run_command
from tests.shape.sources import PACKAGES, ROOT, modules, nodes
from windrow.ingest import errors
from windrow.ingest.cli.main import app
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.runner.outcome import ErrorData


def _kinds() -> list[type[errors.WindrowError]]:
    """Returns all error classes of windrow.ingest."""
    for module in pkgutil.walk_packages(windrow.ingest.__path__, "windrow.ingest."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = [errors.WindrowError]
    for kind in kinds:
        kinds += [
            k
            for k in kind.__subclasses__()
            if k not in kinds and k.__module__.startswith("windrow.ingest.")
        ]
    return kinds


KINDS = _kinds()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_error_comes_back_from_a_worker(kind: type[errors.WindrowError]) -> None:
    """An error of a Spark task is raised as the same error in the driver."""
    error = kind("a log that ends early", "read", "Look at its retention.", "shop.orders", 3, 42)
    back = from_json(to_json(ErrorData.of(error)), ErrorData).error()
    assert type(back) is kind
    assert (vars(back), str(back)) == (vars(error), str(error))


def test_an_error_of_somebody_elses_kind_comes_back() -> None:
    """An error class of a user's transform is raised as the class of windrow that it extends.

    It isn't reported as a bug.
    """
    kind = type("NoRateError", (errors.SpecError,), {})
    back = from_json(
        to_json(ErrorData.of(kind("no rate for a currency", "validate", "Fix the rates."))),
        ErrorData,
    ).error()
    assert (type(back), str(back)) == (
        errors.SpecError,
        "no rate for a currency (transform). Fix the rates.",
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_error_survives_pickling(kind: type[errors.WindrowError]) -> None:
    """An unpickled error has the same class, fields, message and exit code."""
    error = kind("a log that ends early", "read", "Look at its retention.", "shop.orders", 3, 42)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert (vars(back), str(back), back.exit_code) == (vars(error), str(error), kind.exit_code)


def test_error_names_its_place() -> None:
    """An error's message has its topic, partition and offset."""
    assert "shop.orders[3]@42" in str(
        errors.RefusedError("gone", "read", "Look.", "shop.orders", 3, 42)
    )


def test_no_error_advises_what_is_not_there() -> None:
    """Each command that a message advises exists."""
    commands = {(c.name or getattr(c.callback, "__name__", "")) for c in app.registered_commands}
    assert [
        (str(path), command)
        for path in modules("ingest")
        for command in re.findall(r"windrow (\w+) SPEC", path.read_text(encoding="utf-8"))
        if command not in commands
    ] == []


NOUN = re.compile(
    r" (?:(?:\w+ed|new|different|open|valid|poison|more) )?(?:rows|messages|windows|offsets|"
    r"partitions|columns|files|keys|records|receipts|topics|splits|tables|fields|changes|plans|dead"
    r" letters|lines|values|answers|bytes|attempts|steps|hours|requests|versions|schemas)\b(?!-)"
)
TEXTS = re.compile(
    r"(?:\w+_)?(?:begun|bootstrap|folder|format|grid|had|host|id|key|location|name|part|partition|path|place"
    r"|stage|text|topic|uri|url|whose|written)|[A-Z_]+"
)
"""The last parts of names of variables with texts, and names of constants, which are never 1."""


COUNT = re.compile(r"\bformat_count\(|\b(?:len|sum)\((?![A-Z_]+\))[^[]*\)\}|:,\}")
"""An expression in a message whose number may be 1."""
VERB = re.compile(
    r"(?: (?!can|could|would)[\w{}'\[\]]+){0,4}?"
    r" (?:(?:is|are|was|were|has|have|do|does)(?:n't)?|look|lie|fit|become|hold)\b"
)
"""A verb that agrees with the number before it, or with the number's noun."""


def _find_agreeing(path: Path) -> list[str]:
    """Returns messages whose verb is right for one number only, such as "1 row are".

    A verb that a condition on the number chooses is found too.
    """
    by_number = list[ast.expr]()
    for node in nodes(path):
        if isinstance(node, ast.IfExp) and re.search("[=>] 1", ast.unparse(node.test)):
            by_number += [node] if re.search(r"\b(are|were|have)\b", ast.unparse(node)) else []
        for index, value in enumerate(node.values if isinstance(node, ast.JoinedStr) else []):
            text_behind = "".join(
                part.value if isinstance(part, ast.Constant) else "{}"
                for part in node.values[index + 1 :]
            )
            by_number += (
                [node] if COUNT.search(ast.unparse(value)) and VERB.match(text_behind) else []
            )
    return [f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}" for node in by_number]


def _find_plurals(path: Path) -> list[str]:
    """Returns messages with a noun after a number that `format_count` doesn't write: "1 rows"."""
    chosen = [node for node in nodes(path) if isinstance(node, ast.IfExp)]
    chosen = [node for node in chosen if re.search("[=>] 1", ast.unparse(node.test))]
    others = {id(inner) for node in chosen for inner in ast.walk(node)}  # numbers that are never 1
    texts = [n for n in nodes(path) if isinstance(n, ast.JoinedStr) and id(n) not in others]
    return [
        f"{path.relative_to(ROOT)}:{text.lineno}: {ast.unparse(value)}{noun[0]}"
        for text in texts
        for value, next_part in pairwise(text.values)
        if isinstance(value, ast.FormattedValue) and isinstance(next_part, ast.Constant)
        if not TEXTS.fullmatch(re.findall(r"\w+", ast.unparse(value.value))[-1].strip("_"))
        if (noun := NOUN.match(str(next_part.value)))
    ]


def test_numbers_have_their_noun() -> None:
    """Messages never say "1 rows" or "1 row are".

    `format_count` writes a noun after a number, unless the number is never 1. No verb agrees
    with such a number.
    """
    paths = list(modules(*PACKAGES, "airflow/windrow_airflow"))
    paths = [path for path in paths if path.parent.name != "demo"]  # the demo's numbers are large
    assert [line for path in paths for line in _find_plurals(path)] == []
    paths = [path for path in paths if "sinks" not in path.parts]  # which don't follow it yet
    assert [line for path in paths for line in _find_agreeing(path)] == []


def test_messages_name_pages_that_a_user_has() -> None:
    """Messages name pages that `windrow help` shows, and no path below docs.

    Users of the wheel don't have this folder.
    """
    pages, files = set(), []
    for path in modules(*PACKAGES, "airflow/windrow_airflow"):
        if path.is_relative_to(ROOT / "assets" / "demo"):
            continue
        docstring_ids = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
        for node in nodes(path):
            if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in docstring_ids:
                text = ast.unparse(node)
                pages |= set(re.findall(r"\bwindrow help ([a-z][a-z-]*)", text))
                files += [path.name] if re.search(r"(?<!/)\bdocs/\w", text) else []
    pages |= {kind.runbook for kind in KINDS if kind.runbook}
    assert files == []
    assert pages >= {"formats", "retention", "settings", "write-your-own"}
    for page in pages:
        shown = run_command("help", page)
        assert (shown.exit_code, shown.stdout.startswith("# ")) == (0, True), page
    listed = run_command("help").stdout.split()
    assert listed == sorted(path.stem for path in (ROOT / "docs").rglob("*.md"))
    unknown_page = run_command("help", "../README")
    assert (unknown_page.exit_code, "There is no page ../README" in unknown_page.output) == (
        2,
        True,
    )


def test_the_root_is_never_raised() -> None:
    """The root class of errors is never raised.

    It doesn't say who must act, nor whether a retry helps.
    """
    assert [
        f"{path}:{node.lineno}"
        for path in modules("ingest")
        for node in nodes(path)
        if isinstance(node, ast.Call)
        if "WindrowError" in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))
    ] == []


EXIT_CODES = {
    "AccountingError": 70,
    "OwnerError": 1,
    "BugError": 70,
    "CutOffError": 1,
    "DamagedError": 1,
    "DataLossError": 1,
    "DeadLetterLimitError": 1,
    "DeadWorkerError": 3,
    "GridError": 1,
    "IdentityError": 1,
    "LostConnectionError": 3,
    "NotClosedError": 4,
    "OpenTransactionError": 4,
    "OutcomeUnknownError": 3,
    "OverlapError": 1,
    "PausedError": 1,
    "RefusedError": 1,
    "SchemaChangedError": 1,
    "SpecError": 2,
    "SpecMistakesError": 2,
    "UnstorableRowsError": 1,
    "UnreachableError": 3,
    "WindrowError": 70,
}
"""The exit code of each error: 1 data refused, 2 wrong spec, 3 try again, 4 not yet, 70 a bug.

The root, WindrowError, is never raised.
"""


def test_each_error_ends_the_command_with_its_own_code() -> None:
    """Each error class keeps its exit code, because scripts depend on it."""
    assert {kind.__name__: kind.exit_code for kind in KINDS} == EXIT_CODES


def test_the_page_of_errors_shows_each_under_its_code() -> None:
    """The tree in the docstring of `ingest.errors` shows each error below the branch
    with its exit code.
    """
    branch, drawn = 0, {"WindrowError": errors.WindrowError.exit_code}
    for name, code in re.findall(r"── (\w+Error)(?: +exit (\d+))?", errors.__doc__ or ""):
        branch = int(code or branch)
        drawn[name] = branch
    assert drawn == EXIT_CODES
