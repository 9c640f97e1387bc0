"""Spark at any master, and windrow's code for the workers of a cluster.

Workers need Python and the packages that windrow requires, but not windrow itself. Windrow's
code is sent with each job (`ingest.runner.spark.worker_bootstrap`), so that workers run the
driver's version. Each machine keeps the code by its digest, with the files that are compiled
from it.
"""

from __future__ import annotations

import io
import os
import platform
import sys
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.ingest.runner.spark.jobs import (
    SparkJob,
    context_of,
    dump_task,
    session_of,
    spark_errors_as,
)
from windrow.ingest.runner.spark.local import (
    MASTER,
    WORKER_MEMORY,
    is_local,
    launch_java,
    local_properties,
    started_context,
)
from windrow.ingest.runner.spark.pyspark_internals import own_context

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from windrow.ingest.runner.spark.worker_bootstrap import Code

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
    f"spark.executorEnv.{name}": value for name, value in {**WORKER_MEMORY, "TZ": "UTC"}.items()
}


_DO_MASTER = (
    "Nothing was read or committed. Check that it is up, and that the address is exactly that in"
    " its own log (spark://HOST:7077). `windrow doctor` checks Java and Spark on this machine;"
    " --debug shows Spark's own error."
)


def spark_context(master: str = MASTER, more: Mapping[str, str] | None = None) -> SparkContext:
    """Returns the process's SparkContext; makes one at the master if there is none.

    Args:
        master: Spark's master.
        more: Spark properties in addition to windrow's. On a cluster, workers run the
            interpreter in `spark.pyspark.python`, else the `python3` on their own path.
            Spark finds the driver's address itself, unless `spark.driver.host` names it.

    Raises:
        UnreachableError: there is no Java; or, on a cluster, the master doesn't exist or
            doesn't answer within Spark's minute.
    """
    properties = _properties(master, more)
    if is_local(master):
        return started_context(master, properties)
    with spark_errors_as("setup", f"Spark doesn't begin at the master {master}", _DO_MASTER):
        return started_context(master, properties)


def spark_session(master: str = MASTER, more: Mapping[str, str] | None = None) -> SparkSession:
    """Returns the process's SparkSession; see `spark_context`."""
    return session_of(spark_context(master, more))


def launch_early(master: str = MASTER, more: Mapping[str, str] | None = None) -> None:
    """Launches the Java of `spark_context`, without waiting for it.

    Raises:
        UnreachableError: there is no Java.
    """
    launch_java(master, _properties(master, more))


def _properties(master: str, more: Mapping[str, str] | None) -> Mapping[str, str]:
    if is_local(master):
        return local_properties(more)
    python = (more or {}).get(_PYTHON, "python3")
    os.environ["PYSPARK_PYTHON"] = python  # Spark prefers this variable to the property
    return {**_SETTINGS, _PYTHON: python, **(more or {})}


def own_code() -> Code:
    """Returns this process's windrow as a zip, with the versions of the packages that it needs.

    Plugins that are loaded are among these packages. The same files give the same bytes.
    """
    # imported here: workers load this module, too
    from windrow.ingest.settings.kinds import LOADED

    return _pack_code(tuple(LOADED.items()))


@cache
def _pack_code(plugins: tuple[tuple[str, str], ...]) -> Code:
    # imported here: it loads Spark
    from windrow.ingest.runner.spark.worker_bootstrap import Code, digest_of, files_of

    files, packed = files_of(Path(__file__).parents[3]), io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return Code(packed.getvalue(), digest_of(files), {**_versions(), **dict(plugins)})


def _versions() -> dict[str, str]:
    """Returns the versions of Python and of windrow's requirements for tasks, by name.

    Requirements that are not installed here, such as those of extras, are left out.
    """
    from packaging.requirements import Requirement  # imported here: workers load this module, too

    version_by_name = {"python": platform.python_version()}
    for requirement in map(Requirement, requires("windrow-ingest") or []):
        try:
            version_by_name[requirement.name] = version(requirement.name)
        except PackageNotFoundError:  # it belongs to an extra that isn't installed
            continue
    return {name: version_by_name[name] for name in sorted(version_by_name) if name not in _DRIVERS}


def code_to_send() -> Code | None:
    """Returns windrow's code, if workers of this process's Spark may lack it.

    None if all workers are on this machine, where windrow is installed.
    """
    from pyspark.errors import PySparkRuntimeError  # imported here: it loads Spark

    context = own_context()
    masters = [] if context is None else [str(context.master)]
    # a process without a session on a server hasn't loaded this module
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is not None:
        try:
            masters.append(connect.SparkSession.active().conf.get("spark.master", "unknown"))
        except PySparkRuntimeError:  # there is no active session
            masters.append("unknown")
    return None if all(map(is_local, masters)) else own_code()


def job_for_workers(spark: SparkContext | SparkSession, job: SparkJob) -> Any:
    """Returns the callable that workers get for a job.

    It is the job itself. On a cluster, where workers lack windrow's code, it is the job with
    this code.
    """
    context = context_of(spark)
    master = session_of(spark).conf.get("spark.master", "") if context is None else context.master
    if is_local(str(master)):
        return job
    # imported here: it loads Spark
    from windrow.ingest.runner.spark.worker_bootstrap import WorkerBootstrap

    return WorkerBootstrap(dump_task(job), job.shares, job.schema, own_code())
