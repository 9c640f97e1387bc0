"""Runs of pipelines of which everything is kept that they leave, show, send or say.

What is kept is sorted by channel, for `traces.py` to search.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg
import pyarrow.parquet as pq
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._serdes import serialize_value
from dagster_graphql.test.utils import execute_dagster_graphql

from tests.assets.conftest import instance_in
from tests.assets.world import LocalTasks
from tests.integration.logins import HOUR, WrittenPipeline
from windrow.assets.dagster_internals import range_tags
from windrow.assets.factory import kafka_table
from windrow.assets.failures import failure_of
from windrow.assets.names import SPARK_KEY, job_name
from windrow.assets.partitions import key_of
from windrow.ingest.assemble import assemble
from windrow.ingest.config.load import load_spec
from windrow.ingest.config.pipeline import windows_named
from windrow.ingest.errors import WindrowError
from windrow.ingest.kafka import broker
from windrow.ingest.model.codec import to_json
from windrow.ingest.runner.context import Request
from windrow.ingest.runner.run_windows import run
from windrow.ingest.settings import secrets
from windrow.ingest.testing import engine as local

ROOT = Path(__file__).parents[2]

# ---------------------------------------------------------------------------------- in this process


@contextmanager
def kept_tasks() -> Iterator[list[bytes]]:
    """Keeps the pickled tasks of engines in this process."""
    packed = list[bytes]()
    pickle_task = local.pickle_task

    def keep(task: Any) -> bytes:
        packed.append(pickle_task(task))
        return packed[-1]

    with patch.object(local, "pickle_task", keep):
        yield packed


def run_in_dagster(written: WrittenPipeline) -> dict[str, bytes]:
    """Runs the window by Dagster, with tasks in this process; returns the channels but logs."""
    home = written.folder / "dagster"
    home.mkdir()
    spec = load_spec(written.spec)
    [window] = windows_named(spec, HOUR)
    key = key_of(spec.window, window.start)
    job = kafka_table(spec, {SPARK_KEY: LocalTasks()}).resolve_job_def(job_name(spec))
    tags = range_tags(dg.PartitionKeyRange(key, key))
    with instance_in(home) as instance, kept_tasks() as packed:
        done = job.execute_in_process(instance=instance, tags=tags)
        shown = [
            event.step_materialization_data.materialization.metadata
            for event in done.get_asset_materialization_events()
        ]
    pipeline = assemble(spec, local.LocalEngine())
    committed = pipeline.sink.look(window)
    assert committed is not None
    receipt = committed.receipt
    dead = pipeline.dead_letters.read(window, receipt.attempt)
    return {
        "plan": to_json(receipt.plan).encode() + repr(receipt.plan).encode(),
        "receipt": to_json(receipt).encode() + repr(receipt).encode(),
        "metadata": repr(shown).encode(),
        "snapshot": serialize_value(job.get_job_snapshot()).encode(),
        "dead letters": repr(dead.to_pydict()).encode(),
        "reprs": repr([spec, pipeline, job]).encode(),
        "pickles": b"".join(packed),
        **files_of(written.folder),
    }


def files_of(folder: Path) -> dict[str, bytes]:
    """Returns the files of a pipeline by their channels, but for the secrets' own."""
    contents: dict[str, list[bytes]] = {}
    for path in folder.rglob("*"):
        names = path.relative_to(folder).parts
        if not path.is_file() or names[0] in {"secrets", "windrow.yaml", "spec.yaml", "models.py"}:
            continue
        channel = _CHANNEL_BY_FOLDER.get(names[0], names[0])
        if names[0] == "out":
            channel = _CHANNEL_BY_FILE.get(names[1], "spark")
        contents.setdefault(channel, []).append(path.read_bytes())
        if path.suffix == ".parquet":  # its pages are compressed
            table = pq.read_table(path)
            contents[channel] += [repr(table.to_pydict()).encode(), repr(table.schema).encode()]
    return {channel: b"\n".join(parts) for channel, parts in contents.items()}


DEFINITIONS = """
query { repositoriesOrError { ... on RepositoryConnection { nodes {
  jobs { name description tags { key value } runConfigSchema: modes { resources {
    name description configField { name description defaultValueAsJson } } } }
  allTopLevelResourceDetails { name description
    configFields { name description defaultValueAsJson } configuredValues { key value type } }
  assetNodes { id description opNames configField { defaultValueAsJson }
    metadataEntries { label description ... on TextMetadataEntry { text }
      ... on JsonMetadataEntry { jsonString } ... on PathMetadataEntry { path } } } } } } }
"""
RUNS = """
query { runsOrError { ... on Runs { results { runConfigYaml tags { key value }
  eventConnection { events { ... on MessageEvent { message }
    ... on MaterializationEvent { metadataEntries { label description
      ... on TextMetadataEntry { text } ... on JsonMetadataEntry { jsonString } } }
    ... on ExecutionStepFailureEvent { error { message stack } } } } } } } }
"""
"""What Dagster's pages ask for: definitions with their configs and metadata; runs with events."""


def api_of(written: WrittenPipeline) -> bytes:
    """Returns what Dagster's API answers about a pipeline and its runs (`run_in_dagster`)."""
    target = ModuleTarget(
        module_name="tests.integration.canary_definitions",
        attribute="defs",
        working_directory=str(ROOT),
        location_name="here",
    )
    with (
        patch.dict(os.environ, CANARY_SPEC=str(written.spec)),
        instance_in(written.folder / "dagster") as instance,
        WorkspaceProcessContext(instance, target) as workspace,
    ):
        context = workspace.create_request_context()
        answers = [execute_dagster_graphql(context, query) for query in (DEFINITIONS, RUNS)]
    assert [answer.errors for answer in answers] == [None, None]
    return repr([answer.data for answer in answers]).encode()


_CHANNEL_BY_FOLDER = {
    "state.db": "ledger",
    "dagster": "dagster",
    "metrics": "prometheus",
}
_CHANNEL_BY_FILE = {
    "job": "pickles",
    "said": "said",
    "processes": "processes",
    "environments": "environments",
}


def run_and_fail(written: WrittenPipeline) -> dict[str, bytes]:
    """Runs the window, which must fail by one of windrow's own errors; returns the channels."""
    spec = load_spec(written.spec)
    [window] = windows_named(spec, HOUR)
    quick = partial(broker.KafkaBroker, patience_seconds=0.5)
    with (
        kept_tasks() as packed,
        patch.object(broker, "KafkaBroker", quick),
        pytest.raises(WindrowError) as caught,
    ):
        run(assemble(spec, local.LocalEngine()), window, Request("canary"))
    error = caught.value
    failure = failure_of("Window", error)
    return {
        "errors": "".join(traceback.format_exception(error)).encode(),
        "metadata": repr([failure, failure.metadata]).encode(),
        "pickles": b"".join([*packed, pickle.dumps(error)]),
        **files_of(written.folder),
    }


# ------------------------------------------------------------------------------------- broken twins


def _import_users() -> None:
    """Imports all modules that read or mask secrets, so that a twin is in each of them."""
    for file in (ROOT / "ingest").rglob("*.py"):
        if "settings.secrets import" in file.read_text(encoding="utf-8"):
            import_module(".".join(("windrow", *file.relative_to(ROOT).with_suffix("").parts)))


@contextmanager
def leaking_reads() -> Iterator[list[str]]:
    """A twin that tells each secret that is read, as a careless line of a log does.

    Yields:
        What it tells.
    """
    told, read = list[str](), secrets.read
    _import_users()

    def tell(secret: Any, setting: str, **options: Any) -> str:
        told.append(f"{setting} is {read(secret, setting, **options)}")
        return read(secret, setting, **options)

    users = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("windrow.") and getattr(module, "read", None) is read
    ]
    with pytest.MonkeyPatch.context() as patched:
        for module in users:
            patched.setattr(module, "read", tell)
        yield told


@contextmanager
def unmasked_errors() -> Iterator[None]:
    """A twin whose errors quote what servers answer."""
    masked = secrets.masked
    _import_users()
    users = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("windrow.") and getattr(module, "masked", None) is masked
    ]
    with pytest.MonkeyPatch.context() as patched:
        for module in users:
            patched.setattr(module, "masked", lambda text, *_: text)
        yield


# ------------------------------------------------------------------------------------- with Spark


def run_on_spark(written: WrittenPipeline, *options: str) -> dict[str, bytes]:
    """Runs the window in a process of its own; returns the channels."""
    out = written.folder / "out"
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.canary", written.spec, HOUR, out, *options],
        cwd=ROOT,
        env={**os.environ, **written.environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    channels = files_of(written.folder) | {"logs": done.stdout + done.stderr}
    assert b"KafkaReader" in channels["pickles"]
    return channels
