"""Paths, names, links and headings that the pages mention exist.

The guide has a place for each change.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS_OF_PAGES = ("docs", "ingest", "assets", "airflow", "tests/protocols")
PAGES = ["README.md", "DESIGN.md", "FLINK.md", "SECURITY.md"] + [
    str(path.relative_to(ROOT))
    for folder in FOLDERS_OF_PAGES
    for path in sorted((ROOT / folder).rglob("*.md"))
]
FOLDERS = "airflow|ingest|assets|resources|tests|docs|dagster_home|deploy"
PATH = re.compile(rf"((?:{FOLDERS})/[\w./-]*|[A-Z]+\.md|Makefile|pyproject\.toml)(?:: ([\w, ]+))?")
"""A path of the project in code formatting, and names that its file defines.

For example `ingest/errors.py: SpecError`.
"""


def text(page: str) -> str:
    """Returns the text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    """Returns a page without its code blocks, which may be about another project."""
    return re.sub(r"^```.*?^```", "", text(page), flags=re.DOTALL | re.MULTILINE)


def names_in(path: Path) -> set[str]:
    """Returns the names at a module's top level, and the methods of its classes."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
            names |= (
                {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
                if isinstance(node, ast.ClassDef)
                else set()
            )
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def anchors(page: str) -> set[str]:
    """Returns the anchors of a page: its headings in GitHub's form."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_path_is_there(page: str) -> None:
    """Each path on a page exists, and its file defines the names after the path."""
    bad_spans = []
    for span in re.findall(r"`([^`\n]+)`", prose(page)):
        meant = PATH.fullmatch(span)
        if meant is None:
            continue
        path = ROOT / meant[1]
        names = set(meant[2].split(", ")) if meant[2] else set()
        if not path.exists() or (names and not names <= names_in(path)):
            bad_spans.append(span)
    assert bad_spans == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    """Each link within the project leads to an existing page and heading."""
    bad_links = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        linked_page = (ROOT / page).parent / file if file else ROOT / page
        if not linked_page.exists() or (
            anchor and anchor not in anchors(str(linked_page.resolve().relative_to(ROOT)))
        ):
            bad_links.append(target)
    assert bad_links == []


CHANGES = (
    "a format",
    "a kind of sink",
    "an exit code",
    "a kind of grid, its time zone",
    "a column of dead letters",
    "retries: how often, how long they wait, of what",
    "when retention warns",
    "a metadata column",
    "a column of the schema that comes from a message's header or key",
    "what `--json` prints",
    "what happens when messages are gone (data loss: retention, `on_loss`)",
    "how a table is partitioned (by window, or bucket of keys)",
    "what the documentation says of a fault, and its way out",
    "a SASL mechanism (OAUTHBEARER, tokens, a cloud's own), any property of Kafka's client",
    "a check in Dagster",
    "a column of a table that the command prints",
    "how late messages are counted",
    "what the ledger keeps",
    "a metric, such as the time that a commit takes; sent elsewhere (Prometheus, OpenTelemetry)",
    "a codec inside values (gzip, base64, encryption)",
    "when a window is closed: its delay, its wait for open transactions",
    "which windows a schedule requests, when, how many",
    "a rule of a column (a pandera check), what breaks it",
    "limits: of dead letters, of what a window may hold",
    "how many tasks a window has, and how many messages a task holds at once",
    "a property of Spark: executors' memory and cores",
    "another database for the ledger",
    "what may stand in any setting: templates, secrets, durations, sizes, paths",
    "a hash: of rows for checksums, of keys for buckets",
    "a column that is new, wider or gone in the schema of a table that is there",
    "a finding of `windrow verify`",
    "another place for dead letters",
    "group, owners, tags, kinds, description, freshness policy or automation condition of an asset",
    "metadata of a materialization",
    "what a run says while it goes on",
    "the files that `windrow init` and `windrow infer` write",
    "how it is deployed: image, services, users",
    "how a schema registry is asked: sign-in, tokens, TLS, timeouts",
)
"""Changes that a new developer may want to make; each has one place to start."""


@pytest.mark.parametrize("change", CHANGES)
def test_the_guide_says_where_a_change_starts(change: str) -> None:
    """Each change has one row, which names the place to start first, and tests last."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text("DESIGN.md").splitlines()
        if line.startswith(f"| {change} |")
    ]
    assert len(rows) == 1
    _, start, _, proof = rows[0]
    assert PATH.fullmatch(re.findall(r"`([^`]+)`", start)[0])
    assert re.search(r"`tests/[\w./]+`", proof)
