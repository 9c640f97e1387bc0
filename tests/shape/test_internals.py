"""Names of other libraries that windrow uses although they aren't public or documented.

A new release of the library may change them. One file for each library uses such names. These
tests say which name is missing, or behaves differently than the file says.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import zipfile
from functools import reduce
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import dagster as dg
import dagster_webserver
import duckdb
import pandera.polars as pp
import polars as pl
import pyarrow as pa
import pyspark
import pytest
from pyspark import java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql.connect.client import retries
from pyspark.sql.connect.session import SparkSession as ConnectedSession
from pyspark.sql.utils import is_remote

from tests.shape.sources import PACKAGES, ROOT, modules, nodes
from windrow.assets.dagster_internals import LONGEST_TEXT, SCAFFOLDER_WARNING, range_tags
from windrow.ingest.kafka.capi import library
from windrow.ingest.registry.client import Registry, client_of
from windrow.ingest.runner.spark import pyspark_internals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = {
    ("dagster", "1.13", "assets/dagster_internals.py"): {
        # tests/assets/test_dead_replay.py: the dead letters' check is for their newest event
        "dagster._core.definitions.asset_checks.asset_check_evaluation:AssetCheckEvaluationTargetMaterializationData",
        # tests/assets/test_resources.py: a job has no resources of other pipelines
        "dagster._core.definitions.assets.graph.asset_graph:AssetGraph",
        "dagster._core.definitions.unresolved_asset_job_definition:UnresolvedAssetJobDefinition",
        # tests/assets/test_events.py: versions of windows and of their topics
        "dagster._core.definitions.data_version:CODE_VERSION_TAG",
        "dagster._core.definitions.data_version:DATA_VERSION_IS_USER_PROVIDED_TAG",
        "dagster._core.definitions.data_version:DATA_VERSION_TAG",
        "dagster._core.definitions.data_version:DEFAULT_DATA_VERSION",
        "dagster._core.definitions.data_version:NULL_EVENT_POINTER",
        "dagster._core.definitions.data_version:get_input_data_version_tag",
        "dagster._core.definitions.data_version:get_input_event_pointer_tag",
        # tests/assets/test_events.py: a step that logs its windows' events logs no others
        "dagster._core.definitions.source_asset:SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION",
        # tests/assets/test_failures.py: an error is shown without a stack trace
        "dagster._core.errors:DagsterUserCodeProcessError",
        "dagster._utils.error:SerializableErrorInfo",
        # test_a_run_covers_a_range_by_its_tags
        "dagster._core.storage.tags:ASSET_PARTITION_RANGE_END_TAG",
        "dagster._core.storage.tags:ASSET_PARTITION_RANGE_START_TAG",
        # tests/assets/test_schedule.py: the ticks of a process share an instance
        "dagster:ScheduleEvaluationContext._instance",
    },
    ("pyspark", "4.3", "ingest/runner/spark/pyspark_internals.py"): {
        "pyspark:SparkContext._active_spark_context",
        "pyspark:SparkContext._gateway",
        "pyspark.java_gateway:launch_gateway",
        "pyspark.serializers:UTF8Deserializer",
        "pyspark.serializers:read_int",
        "pyspark.sql.classic.dataframe:DataFrame._jdf",
        "pyspark.sql.connect.session:SparkSession._active_session",
        "pyspark.sql:SparkSession._jvm",
    },
    ("confluent-kafka", "2.16", "ingest/registry/client.py"): {
        "confluent_kafka.schema_registry:SchemaRegistryClient._rest_client",
    },
    ("httpx2", "2.16", "ingest/registry/sessions.py"): {
        # tests/registry/test_client.py: the head of an answer comes slowly
        "httpcore2:ConnectionPool.__init__._network_backend",
        "httpx2:Client.__init__._mounts",
        "httpx2:Client.__init__._transport",
        "httpx2:HTTPTransport.__init__._pool",
    },
    ("botocore", "1.44", "ingest/sinks/kit/files/put_if_absent.py"): {
        "botocore.client:BaseClient.__init__._endpoint",
    },
    ("pandera", "0.35", "ingest/transform/rules.py"): {
        "pandera.api.function_dispatch:Dispatcher",
        "pandera.polars:Check._check_fn",
    },
    ("pyiceberg", "0.12", "ingest/sinks/iceberg/pyiceberg_internals.py"): {
        "pyiceberg.catalog.rest:RestCatalog._config_headers",
        # tests/sinks/iceberg/test_rest.py: a catalog's answers load no code
        "pyiceberg.catalog.rest:RestCatalog._fetch_config",
        "pyiceberg.catalog:Catalog._load_file_io",
        "pyiceberg.catalog.sql:SqlCatalog._convert_orm_to_iceberg",
        "pyiceberg.catalog.sql:SqlCatalog._load_file_io",
        "pyiceberg.table:Table._do_commit",
        "pyiceberg.table:Transaction._apply",
        "pyiceberg.table:Transaction._requirements",
        "pyiceberg.table:Transaction._table",
        "pyiceberg.table:Transaction._updates",
        # tests/sinks/iceberg/test_keyed.py: a table doesn't get a manifest more with each window
        "pyiceberg.table.update.snapshot:_MergeAppendFiles",
        "pyiceberg.table.update.snapshot:_OverwriteFiles",
        "pyiceberg.table.update.snapshot:_OverwriteFiles._existing_manifests",
    },
    ("numba", "0.68", "ingest/native/compiling.py"): {
        "numba.core.cgutils:_StructProxy._getvalue",
        "numba.core.cgutils:raw_memcpy",
        "numba.core.cgutils:true_bit",
        "numba.core.cgutils:unpack_tuple",
        "numba.core.cgutils:voidptr_t",
        "numba.core.registry:cpu_target.target_context",
        "numba.core.sigutils:normalize_signature",
        "numba.np.arrayobj:populate_array",
    },
}
"""Names that aren't public, by library, the version with which they were tested, and file."""

PUBLIC = {"_asdict", "_exit", "_replace"}
"""Names of Python that are public although they begin with an underscore."""

UNDOCUMENTED = ("numba.core", "numba.np", "pandera.api")
"""Packages of libraries whose names aren't public, even without an underscore."""

SHOWN = ["dagster/size_bytes", "dagster/storage_kind"]
"""Metadata that Dagster's pages show in a special way, although no documentation says so."""


def private_imports(path: Path) -> set[str]:
    """Returns the names that a file imports from modules that aren't public."""
    imports = [
        (module, alias.name)
        for node in nodes(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        for module in [alias.name if isinstance(node, ast.Import) else node.module or ""]
    ]
    return {
        name
        for module, name in imports
        if module.startswith(UNDOCUMENTED) or re.search(r"(^|\.)_[a-z]", f"{module}.{name}")
    }


def private_attributes(path: Path) -> set[str]:
    """Returns the private attributes that a file uses and doesn't define itself."""
    defined, attributes = set[str](), set[str]()
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            of_itself = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
            (defined if of_itself else attributes).add(node.attr)
    return attributes - defined - PUBLIC


def test_no_other_file_uses_private_names() -> None:
    """Only one file for each library uses the library's private names, and the table lists them.

    So an upgrade of a library affects few files.
    """
    of_files = {
        path.relative_to(ROOT).as_posix(): private_imports(path) | private_attributes(path)
        for path in modules(*PACKAGES)
    }
    listed = {
        file: {re.split("[:.]", name)[-1] for name in names}
        for (_, _, file), names in NAMES.items()
    }
    more = {
        file: names - listed.get(file, set())
        for file, names in of_files.items()
        if names - listed.get(file, set()) - {"cgutils", "cpu_target", "sigutils"}
    }
    assert more == {}


@pytest.mark.parametrize(
    ("library", "version_seen", "file", "name"),
    [(*key, name) for key, names in NAMES.items() for name in sorted(names)],
)
def test_the_name_is_there(library: str, version_seen: str, file: str, name: str) -> None:
    """Each name of the table exists in its library."""
    module, _, path = name.partition(":")
    *owners, last = path.split(".")
    message = (
        f"{library} {version(library)} has no {path} in {module} any more, which {library}"
        f" {version_seen} had: {file} says what it is for"
    )
    try:
        owner = reduce(getattr, owners, import_module(module))
    except (ImportError, AttributeError):
        pytest.fail(message)
    is_defined = hasattr(owner, last) or f"self.{last}" in inspect.getsource(owner)
    assert is_defined, message


def test_dagster_is_of_the_version_that_was_tried() -> None:
    """The installed Dagster is the version with which these names were tested."""
    assert dg.__version__.startswith("1.13.")


# --------------------------------------------------------------------------------------------------


def pages() -> list[bytes]:
    """Returns the scripts of Dagster's pages."""
    build = Path(str(dagster_webserver.__file__)).parent / "webapp" / "build"
    return [page.read_bytes() for page in build.rglob("*.js")]


@pytest.mark.parametrize("name", SHOWN)
def test_the_pages_know_the_metadata(name: str) -> None:
    """Dagster's pages know each metadata name; an unknown name would be shown as a plain entry."""
    assert any(name.encode() in page for page in pages())


def test_the_pages_show_a_summary_where_it_stands() -> None:
    """Dagster's pages show a text of up to 999 characters in full, and a link for longer ones."""
    assert LONGEST_TEXT == 999
    assert any(b".mdStr.length<1e3" in page for page in pages())


def test_a_run_covers_a_range_by_its_tags() -> None:
    """The tags of a run with a range are those of runs that are stored already."""
    tags = range_tags(dg.PartitionKeyRange("a", "b"))
    assert tags == {
        "dagster/asset_partition_range_start": "a",
        "dagster/asset_partition_range_end": "b",
    }


def test_dagster_warns_of_a_class_that_windrow_does_not_use() -> None:
    """Dagster still gives the warning that windrow ignores."""
    from dagster_spark import SparkDeclarativePipelineScaffolder

    with pytest.warns(dg.PreviewWarning, match=SCAFFOLDER_WARNING):
        SparkDeclarativePipelineScaffolder()


# --------------------------------------------------------------------------------------------------


def test_pyspark_launches_java_as_windrow_does(tmp_path: Path) -> None:
    """pyspark starts Java with the same variables and the same program as windrow."""
    source = inspect.getsource(java_gateway.launch_gateway)
    command, environment = pyspark_internals.java_launch({}, tmp_path / "answer")
    changed_names = {name for name in environment if environment[name] != os.environ.get(name)}
    assert {name for name in changed_names if f'env["{name}"]' not in source} == set()
    assert command[1:] == ["pyspark-shell"]
    assert "/bin/spark-submit" in source
    for name in ("PYSPARK_SUBMIT_ARGS", pyspark_internals.JAVA_PORT, pyspark_internals.JAVA_SECRET):
        assert f'"{name}"' in source


def test_java_s_answer_is_port_and_secret(tmp_path: Path) -> None:
    """Java writes its port and its secret into a file; the secret's length is before it."""
    (tmp_path / "answer").write_bytes(b"\0\0\x7a\x69" + b"\0\0\0\x03" + b"abc")
    assert pyspark_internals.java_answer(tmp_path / "answer") == ("31337", "abc")


def test_a_server_s_session_is_the_thread_s_own() -> None:
    """A Spark Connect session is the thread's active session inside the block only.

    After the block the earlier session is active again.
    """
    session: Any = SimpleNamespace(is_stopped=False)
    session_before = ConnectedSession.getActiveSession()
    with pyspark_internals.active_in_thread(session):
        assert ConnectedSession.getActiveSession() is session
    assert ConnectedSession.getActiveSession() is session_before


def test_a_variable_says_whose_columns_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variable, pyspark makes columns for Spark Connect."""
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setenv(pyspark_internals.CONNECT_MODE, "1")
    assert is_remote()


def test_the_texts_of_spark_s_errors() -> None:
    """Spark's errors have the texts by which a run recognizes them and gives its advice."""
    python_error = PySparkRuntimeError(
        errorClass="PYTHON_VERSION_MISMATCH",
        messageParameters={"worker_version": "3.9", "driver_version": "3.11"},
    )
    match = pyspark_internals.OTHER_PYTHON.search(str(python_error))
    assert match is not None
    assert match.groups() == ("3.9", "3.11")
    connection_error = SparkConnectGrpcException("no answer")
    assert pyspark_internals.SPARK_GONE.search(
        f"{type(connection_error).__name__}: {connection_error}"
    )
    assert re.search(pyspark_internals.RETRIES_WARNING, inspect.getsource(retries))
    conditions = json.loads(in_jar("spark-common-utils", "error/error-conditions.json"))
    texts = f"{pyspark_internals.LOST_OR_RAISED} {pyspark_internals.SPARK_GONE.pattern}"
    named = set(re.findall(r"[A-Z]+(?:_[A-Z]+)+", texts))
    assert len(named) == 3
    assert named <= set(conditions)
    scheduler = in_jar("spark-core", "org/apache/spark/scheduler/DAGScheduler.class")
    assert b"SparkContext was shut down" in scheduler
    assert b"ExecutorLostFailure (" in in_jar(
        "spark-core", "org/apache/spark/ExecutorLostFailure.class"
    )


def test_the_service_of_spark_connect() -> None:
    """The class of the Spark Connect service has the field with its port."""
    service = in_jar(
        "spark-connect", "org/apache/spark/sql/connect/service/SparkConnectService$.class"
    )
    assert b"localPort" in service


def in_jar(jar: str, name: str) -> bytes:
    """Reads a file from one of pyspark's jars."""
    (path,) = (Path(pyspark.__file__).parent / "jars").glob(f"{jar}_*.jar")
    with zipfile.ZipFile(path) as archive:
        return archive.read(name)


@pytest.mark.spark
def test_spark_has_what_windrow_asks_it_for(spark: SparkSession) -> None:
    """Spark has Java, a context, and the settings and the idle workers' timeout that
    windrow expects.
    """
    context: Any = spark.sparkContext
    assert pyspark_internals.has_java()
    assert pyspark_internals.own_context() is context
    assert pyspark_internals.range_splits(spark) == context.defaultParallelism
    for name in (*pyspark_internals.REFUSE_CHANGED_SHUFFLES, pyspark_internals.BUFFER_BYTES):
        spark.conf.get(name)  # raises an error if Spark has no such setting
    workers = context._jvm.org.apache.spark.api.python.PythonWorkerFactory  # noqa: SLF001
    assert workers.IDLE_WORKER_TIMEOUT_NS() == pyspark_internals.IDLE_WORKER_SECONDS * 10**9


@pytest.mark.spark
def test_a_checkpoint_goes_at_once(spark: SparkSession) -> None:
    """A dropped checkpoint's rows are no longer stored in Spark."""
    java_context: Any = spark.sparkContext._jsc  # noqa: SLF001
    count_before = java_context.getPersistentRDDs().size()
    frame = spark.range(3).localCheckpoint()
    assert java_context.getPersistentRDDs().size() == count_before + 1
    pyspark_internals.drop_checkpoint(frame)
    assert java_context.getPersistentRDDs().size() == count_before


@pytest.mark.spark
def test_a_setting_of_the_session_is_of_its_workers(spark: SparkSession) -> None:
    """Workers get the settings of their session, so sessions with other settings have
    other workers.
    """

    def size(batches: Any) -> Any:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"size": [os.environ["SPARK_BUFFER_SIZE"]]})

    session = spark.newSession()
    session.conf.set(pyspark_internals.BUFFER_BYTES, "65599")
    (row,) = session.range(0, 1, 1, 1).mapInArrow(size, "size string").collect()
    assert row["size"] == "65599"


# --------------------------------------------------------------------------------------------------


def test_the_registry_s_client_takes_headers_and_hooks() -> None:
    """The registry's client takes headers and response hooks, which limit the size of answers."""
    session = client_of(Registry("http://127.0.0.1:1"), os.getpid())._rest_client.session  # noqa: SLF001
    assert type(session).__module__.partition(".")[0] == "httpx2"
    assert session.headers["Connection"] == "close"
    assert len(session.event_hooks["response"]) == 1


def test_librdkafka_is_of_a_version_that_was_tried() -> None:
    """librdkafka has a version that was tested, and each function that windrow calls."""
    assert library().version() >> 16 == 0x0210


def test_pandera_tells_its_own_checks_from_others() -> None:
    """pandera's own checks are known by their dispatcher, and their backend computes verdicts."""
    from pandera.api.function_dispatch import Dispatcher

    frame, check = pl.LazyFrame({"a": [1, 3]}), pp.Check.gt(2)
    assert isinstance(check._check_fn, Dispatcher)  # noqa: SLF001
    assert not isinstance(pp.Check(lambda data: data.lazyframe)._check_fn, Dispatcher)  # noqa: SLF001
    verdicts = check.get_backend(frame)(check).apply(pp.PolarsData(frame, "a"))
    assert verdicts.collect().to_series().to_list() == [False, True]


def test_duckdb_takes_a_select_apart() -> None:
    """The syntax tree of DuckDB has the names by which a sql step is read."""
    tree = json.loads(
        duckdb.execute(
            "SELECT json_serialize_sql('SELECT a + 1 AS b FROM rows WHERE a > 2')"
        ).fetchall()[0][0]
    )
    (statement,) = tree["statements"]
    node = statement["node"]
    assert (tree["error"], node["type"]) == (False, "SELECT_NODE")
    assert node["from_table"]["table_name"] == "rows"
    assert node["where_clause"]["class"] == "COMPARISON"
    (output,) = node["select_list"]
    assert (output["class"], output["alias"]) == ("FUNCTION", "b")
    assert [a["expression"]["class"] for a in output["arguments"]] == ["COLUMN_REF", "CONSTANT"]
    assert output["arguments"][0]["expression"]["column_names"] == ["a"]
