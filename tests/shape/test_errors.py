"""Errors travel: from a Spark worker to the driver as data, between processes as pickles."""

from __future__ import annotations

import ast
import importlib
import pickle
import pkgutil
import re
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

import windrow.ingest
from windrow.ingest import errors
from windrow.ingest.cli.main import app
from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.runner.outcome import ErrorData


def _kinds() -> list[type[errors.WindrowError]]:
    """Every error there is, wherever in ingest it is defined."""
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
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_error_comes_back_from_a_worker(kind: type[errors.WindrowError]) -> None:
    """What a Spark task brings back as data is raised as the same error."""
    error = kind("a log that ends early", "read", "Look at its retention.", "shop.orders", 3, 42)
    back = from_json(to_json(ErrorData.of(error)), ErrorData).error()
    assert type(back) is kind
    assert (vars(back), str(back)) == (vars(error), str(error))


def test_an_error_of_somebody_elses_kind_comes_back() -> None:
    """One that a transform made for itself is raised as windrow's own that it is, not
    as a bug in bringing it back.
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
    """An error comes back of the same class, with all its fields and the same paragraph."""
    error = kind("a log that ends early", "read", "Look at its retention.", "shop.orders", 3, 42)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert (vars(back), str(back), back.exit_code) == (vars(error), str(error), kind.exit_code)


def test_error_names_its_place() -> None:
    """The paragraph says where it happened."""
    assert "shop.orders[3]@42" in str(
        errors.RefusedError("gone", "read", "Look.", "shop.orders", 3, 42)
    )


@pytest.mark.parametrize(
    "path", sorted(Path(windrow.ingest.__path__[0]).rglob("*.py")), ids=lambda path: path.stem
)
def test_no_error_advises_what_is_not_there(path: Path) -> None:
    """Every command that a text sends a person to is one."""
    advised = set(re.findall(r"windrow (\w+) SPEC", path.read_text(encoding="utf-8")))
    assert advised <= {
        (c.name or getattr(c.callback, "__name__", "")) for c in app.registered_commands
    }


NOUN = re.compile(
    r" (?:(?:\w+ed|new|different|open|valid|poison|more) )?(?:rows|messages|windows|offsets|"
    r"partitions|columns|files|keys|records|receipts|topics|splits|tables|fields|changes|plans|dead"
    r" letters|lines|values|answers|bytes|attempts|steps|hours|requests|versions|schemas)\b(?!-)"
)
TEXTS = re.compile(
    r"(?:\w+_)?(?:begun|bootstrap|folder|format|grid|had|host|id|key|location|name|part|partition|path|place"
    r"|stage|text|topic|uri|url|whose|written)|[A-Z_]+"
)
"""The last names of texts, and of constants, none of which is 1."""


COUNT = re.compile(r"\bformat_count\(|\b(?:len|sum)\((?![A-Z_]+\))[^[]*\)\}|:,\}")
"""What a text has a number of, that may be 1."""
VERB = re.compile(
    r"(?: (?!can|could|would)[\w{}'\[\]]+){0,4}?"
    r" (?:(?:is|are|was|were|has|have|do|does)(?:n't)?|look|lie|fit|become|hold)\b"
)
"""A verb that goes with the number before it, or with the noun of that."""


def _find_agreeing(path: Path) -> list[str]:
    """Verbs in texts that are right for one number only, and those chosen by it: "1 row are"."""
    by_number = list[ast.expr]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
    """Numbers in texts with a noun behind them that `format_count` doesn't write: "1 rows"."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    chosen = [node for node in nodes if isinstance(node, ast.IfExp)]
    chosen = [node for node in chosen if re.search("[=>] 1", ast.unparse(node.test))]
    others = {id(inner) for node in chosen for inner in ast.walk(node)}  # of more than one
    texts = [n for n in nodes if isinstance(n, ast.JoinedStr) and id(n) not in others]
    return [
        f"{path.relative_to(ROOT)}:{text.lineno}: {ast.unparse(value)}{noun[0]}"
        for text in texts
        for value, next_part in pairwise(text.values)
        if isinstance(value, ast.FormattedValue) and isinstance(next_part, ast.Constant)
        if not TEXTS.fullmatch(re.findall(r"\w+", ast.unparse(value.value))[-1].strip("_"))
        if (noun := NOUN.match(str(next_part.value)))
    ]


def test_numbers_have_their_noun() -> None:
    """A message of one row doesn't say "1 rows", nor "1 row are": nouns behind numbers are written
    by `format_count`, or where the number is known to be another one, and no verb goes with them.
    """
    folders = ("ingest", "assets", "resources", "airflow/windrow_airflow")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    paths = [path for path in paths if path.parent.name != "demo"]  # whose numbers are large
    assert [line for path in paths for line in _find_plurals(path)] == []
    paths = [path for path in paths if "sinks" not in path.parts]  # which have yet to follow
    assert [line for path in paths for line in _find_agreeing(path)] == []


def test_messages_name_pages_that_a_user_has() -> None:
    """No message names a file of this folder, which no wheel has; `windrow help PAGE` shows each
    page that one names.
    """
    pages, files = set(), []
    for folder in ("ingest", "assets", "resources", "airflow/windrow_airflow"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.is_relative_to(ROOT / "assets" / "demo"):
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            docstring_ids = {
                id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in docstring_ids:
                    text = ast.unparse(node)
                    pages |= set(re.findall(r"\bwindrow help ([a-z][a-z-]*)", text))
                    files += [path.name] if re.search(r"(?<!/)\bdocs/\w", text) else []
    pages |= {kind.runbook for kind in KINDS if kind.runbook}
    assert files == []
    assert pages >= {"formats", "retention", "settings", "write-your-own"}
    for page in pages:
        shown = CliRunner().invoke(app, ["help", page])
        assert (shown.exit_code, shown.stdout.startswith("# ")) == (0, True), page
    listed = CliRunner().invoke(app, ["help"]).stdout.split()
    assert listed == sorted(path.stem for path in (ROOT / "docs").rglob("*.md"))
    unknown_page = CliRunner().invoke(app, ["help", "../README"])
    assert (unknown_page.exit_code, "There is no page ../README" in unknown_page.output) == (
        2,
        True,
    )


@pytest.mark.parametrize(
    "path", sorted(Path(windrow.ingest.__path__[0]).rglob("*.py")), ids=lambda path: path.stem
)
def test_the_root_is_never_raised(path: Path) -> None:
    """An error of no branch would say neither who must act nor whether to try again."""
    calls = [
        node.func
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    assert "WindrowError" not in {ast.unparse(called) for called in calls}


EXIT_CODES = {
    "AccountingError": 70,
    "OwnerError": 1,
    "BugError": 70,
    "CutOffError": 1,
    "DamagedError": 1,
    "DataLossError": 1,
    "DeadLetterLimitError": 1,
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
"""1 data refused, 2 wrong spec, 3 try again, 4 not yet, 70 a bug.

The root is of no branch, and never raised.
"""


def test_each_error_ends_the_command_with_its_own_code() -> None:
    """Scripts go by the exit code: no error changes its, and a new one says which it has."""
    assert {kind.__name__: kind.exit_code for kind in KINDS} == EXIT_CODES


def test_the_page_of_errors_shows_each_under_its_code() -> None:
    """The tree at the top of `ingest.errors` names every error, below the branch whose
    exit code it has.
    """
    branch, drawn = 0, {"WindrowError": errors.WindrowError.exit_code}
    for name, code in re.findall(r"── (\w+Error)(?: +exit (\d+))?", errors.__doc__ or ""):
        branch = int(code or branch)
        drawn[name] = branch
    assert drawn == EXIT_CODES
