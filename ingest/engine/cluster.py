"""Spark on other machines: a session on a cluster's master, and windrow's own code on its way to the workers.

Workers need Python and the packages that windrow requires, and none of windrow: its code travels with each job (`ingest.engine.arrival`),
so that what a driver is, its workers are, too. Each machine keeps it by its digest, with what was compiled of it.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from packaging.requirements import Requirement

from ingest.engine.local import MASTER, local_session, started_session
from ingest.engine.spark import SparkEngine, SparkJob, own_parallelism

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(\[.*\])?")

_DRIVERS = ("dagster", "dagster-dg-cli", "dagster-pyspark", "dagster-webserver", "typer", "rich", "pyyaml", "python-dotenv", "structlog")
"""Requirements that no task imports."""

_PYTHON = "spark.pyspark.python"

_SETTINGS = {
    # glibc gives each thread an arena that it rarely shrinks; librdkafka and polars have many threads in each worker.
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
}


def is_local(master: str) -> bool:
    """Whether a master is this machine itself."""
    return _LOCAL.fullmatch(master) is not None


def spark_session(master: str = MASTER, more: Mapping[str, str] | None = None) -> SparkSession:
    """The process's session at a master, made if there is none. `more`: Spark properties on top of windrow's own.

    On a cluster the workers' interpreter is `spark.pyspark.python`'s, else the `python3` of their own path; where the driver is reached is
    Spark's to find, or `spark.driver.host`'s to say.
    """
    if is_local(master):
        return local_session(master, more)
    named = (more or {}).get(_PYTHON, "python3")
    os.environ["PYSPARK_PYTHON"] = named  # which wins over the property
    return started_session(master, {**_SETTINGS, _PYTHON: named, **(more or {})})


def spark_engine(session: Callable[[], SparkSession], master: str = MASTER) -> SparkEngine:
    """An engine on a session at a master."""
    return SparkEngine(session) if is_local(master) else SparkEngine(session, own_parallelism, shipped)


class Project(msgspec.Struct, frozen=True):
    """Windrow's own code as a zip, the digest of its files, and the versions of what it stands on."""

    code: bytes
    digest: str
    versions: Mapping[str, str]


@cache
def project() -> Project:
    """This process's. The same files give the same bytes."""
    package = Path(__file__).parents[1]
    files = sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    digest, packed = hashlib.sha256(), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            name, content = path.relative_to(package.parent).as_posix(), path.read_bytes()
            digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
            archive.writestr(zipfile.ZipInfo(name), content)
    return Project(packed.getvalue(), digest.hexdigest()[:32], _versions())


def _versions() -> dict[str, str]:
    """Of Python, and of all that windrow requires where its tasks run, as far as it is installed here; extras count where they are."""
    found = {"python": platform.python_version()}
    for requirement in map(Requirement, requires("windrow") or []):
        try:
            found[requirement.name] = version(requirement.name)
        except PackageNotFoundError:  # of an extra that nobody asked for
            continue
    return {name: found[name] for name in sorted(found) if name not in _DRIVERS}


def shipped(job: SparkJob) -> Any:
    """The job with all that a worker needs to run it."""
    from pyspark import cloudpickle  # noqa: PLC0415  # Spark is loaded only where it is used

    from ingest.engine import arrival  # noqa: PLC0415  # as above: it loads Arrow

    cloudpickle.register_pickle_by_value(arrival)  # type: ignore[no-untyped-call]  # Spark's own
    ours = project()
    return arrival.Arrival(cloudpickle.dumps(job), job.shares, job.schema, ours.code, ours.digest, ours.versions)  # type: ignore[no-untyped-call]
