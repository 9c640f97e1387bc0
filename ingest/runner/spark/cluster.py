"""Spark on other machines: a session on a cluster's master, and windrow's own code on
its way to the workers.

Workers need Python and the packages that windrow requires, and none of windrow: its
code travels with each job (`ingest.runner.spark.worker_bootstrap`), so that what a driver is,
its workers are, too. Each machine keeps it by its digest, with what was compiled of it.
"""

from __future__ import annotations

import io
import os
import platform
import re
import sys
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from windrow.ingest.runner.spark.local import MASTER, local_session, started_session
from windrow.ingest.runner.spark.spark import (
    SparkEngine,
    SparkJob,
    dumped,
    own_parallelism,
    spark_troubles_as,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from windrow.ingest.runner.spark.worker_bootstrap import Code

_LOCAL = re.compile(r"local(\[.*\])?")

_DRIVERS = (
    "dagster",
    "dagster-dg-cli",
    "dagster-pyspark",
    "dagster-webserver",
    "typer",
    "rich",
    "pyyaml",
    "python-dotenv",
)
"""Requirements that no task imports."""

_PYTHON = "spark.pyspark.python"

_SETTINGS = {
    # glibc gives each thread an arena that it rarely shrinks; librdkafka and polars
    # have many threads in each worker.
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
}


_DO_MASTER = (
    "Nothing was read or committed. Is it up, and is this its address to the letter, as its own log"
    " has it (spark://HOST:7077)? `windrow doctor` says whether Java and Spark are well here;"
    " --debug shows Spark's own words."
)


def is_local(master: str) -> bool:
    """Whether a master is this machine itself."""
    return _LOCAL.fullmatch(master) is not None


def spark_session(master: str = MASTER, more: Mapping[str, str] | None = None) -> SparkSession:
    """The process's session at a master, made if there is none.

    `more`: Spark properties on top of windrow's own.

    On a cluster the workers' interpreter is `spark.pyspark.python`'s, else the
    `python3` of their own path; where the driver is reached is Spark's to find, or
    `spark.driver.host`'s to say.

    Raises:
        UnreachableError: on a cluster: there is no such master, or it doesn't answer
            for as long as Spark asks it, which is a minute.
    """
    if is_local(master):
        return local_session(master, more)
    named = (more or {}).get(_PYTHON, "python3")
    os.environ["PYSPARK_PYTHON"] = named  # which wins over the property
    with spark_troubles_as("setup", f"Spark doesn't begin at the master {master}", _DO_MASTER):
        return started_session(master, {**_SETTINGS, _PYTHON: named, **(more or {})})


def spark_engine(session: Callable[[], SparkSession], master: str = MASTER) -> SparkEngine:
    """An engine on a session at a master."""
    return (
        SparkEngine(session) if is_local(master) else SparkEngine(session, own_parallelism, shipped)
    )


@cache
def own_code() -> Code:
    """This process's windrow, and the versions of what it stands on.

    The same files give the same bytes.
    """
    from windrow.ingest.runner.spark.worker_bootstrap import (
        Code,
        digest_of,
        files_of,
    )  # Spark is loaded only where it is used

    files, packed = files_of(Path(__file__).parents[3]), io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return Code(packed.getvalue(), digest_of(files), _versions())


def _versions() -> dict[str, str]:
    """Of Python, and of all that windrow requires where its tasks run, as far as it is
    installed here; extras count where they are.
    """
    found = {"python": platform.python_version()}
    for requirement in map(Requirement, requires("windrow-ingest") or []):
        try:
            found[requirement.name] = version(requirement.name)
        except PackageNotFoundError:  # of an extra that nobody asked for
            continue
    return {name: found[name] for name in sorted(found) if name not in _DRIVERS}


def code_to_send() -> Code | None:
    """What the workers of this process's Spark sessions may lack of windrow; None where
    all of them are on this machine, and have it.
    """
    from pyspark import SparkContext  # as above

    own = SparkContext._active_spark_context  # nothing public tells without making one  # noqa: SLF001
    masters = [] if own is None else [str(own.master)]
    # who has no session there hasn't loaded it
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is not None:
        session = (
            connect.SparkSession.getActiveSession() or connect.SparkSession._get_default_session()  # noqa: SLF001
        )  # as above
        masters.append(
            "unknown" if session is None else session.conf.get("spark.master", "unknown")
        )
    return None if all(map(is_local, masters)) else own_code()


def shipped(job: SparkJob) -> Any:
    """The job with all that a worker needs to run it."""
    from windrow.ingest.runner.spark.worker_bootstrap import WorkerBootstrap  # as above

    return WorkerBootstrap(dumped(job), job.shares, job.schema, own_code())
