"""What windrow takes of Dagster that is not among its public or documented names.

Dagster may change it in any release. These tests name the version that it was tried with, and
the tests that see a change.
"""

from __future__ import annotations

import ast
from pathlib import Path

import dagster as dg
import dagster_webserver
import pytest

from windrow.assets.summary import LONGEST

PROJECT = Path(__file__).parents[2]
VERSION = "1.13"
NAMES = {
    # test_dead_replay.py: the check of the dead letters is of their newest event
    "dagster._core.definitions.asset_checks.asset_check_evaluation": {
        "AssetCheckEvaluationTargetMaterializationData"
    },
    # test_resources.py: a job has no resources of other pipelines
    "dagster._core.definitions.assets.graph.asset_graph": {"AssetGraph"},
    "dagster._core.definitions.unresolved_asset_job_definition": {"UnresolvedAssetJobDefinition"},
    # test_events.py: versions of windows, and of the topics that they were read from
    "dagster._core.definitions.data_version": {
        "CODE_VERSION_TAG",
        "DATA_VERSION_IS_USER_PROVIDED_TAG",
        "DATA_VERSION_TAG",
        "DEFAULT_DATA_VERSION",
        "NULL_EVENT_POINTER",
        "get_input_data_version_tag",
        "get_input_event_pointer_tag",
    },
    # test_events.py: a step that logs its windows' events has none of its own
    "dagster._core.definitions.source_asset": {"SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION"},
    # test_failures.py: an error is shown without a stack
    "dagster._core.errors": {"DagsterUserCodeProcessError"},
    "dagster._utils.error": {"SerializableErrorInfo"},
}
"""The names, with the tests that break where one changes its meaning."""

SHOWN = ["dagster/size_bytes", "dagster/storage_kind"]
"""Metadata that Dagster's pages show in a place of its own, and its documentation doesn't name."""


def test_the_version_is_the_one_that_was_tried() -> None:
    """Who takes another one looks at all that stands here first."""
    assert dg.__version__.startswith(f"{VERSION}.")


def test_no_other_private_name_is_used() -> None:
    """Each name that begins below an underscore is in the list."""
    found: dict[str, set[str]] = {}
    for file in [*PROJECT.glob("assets/**/*.py"), *PROJECT.glob("resources/*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dagster._"):
                found.setdefault(str(node.module), set()).update(n.name for n in node.names)
    assert found == NAMES


@pytest.mark.parametrize("name", SHOWN)
def test_the_pages_know_the_metadata(name: str) -> None:
    """A name that Dagster's pages don't know would be a plain entry."""
    pages = Path(str(dagster_webserver.__file__)).parent / "webapp" / "build"
    assert any(name.encode() in page.read_bytes() for page in pages.rglob("*.js"))


def test_the_pages_show_a_summary_where_it_stands() -> None:
    """In the place of a longer text there would be a link."""
    pages = Path(str(dagster_webserver.__file__)).parent / "webapp" / "build"
    assert LONGEST == 999
    assert any(b".mdStr.length<1e3" in page.read_bytes() for page in pages.rglob("*.js"))
