"""A secret of a login leaves no trace in what a run writes, shows, sends or says.

Each search has a twin that leaks, so that the test shows what it would see.
"""

from __future__ import annotations

import logging
import re
import typing
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from tests.assets.conftest import DAGSTER_ITSELF
from tests.integration.canary import WRONG
from tests.integration.channels import (
    api_of,
    leaking_reads,
    run_and_fail,
    run_in_dagster,
    run_on_spark,
    unmasked_errors,
)
from tests.integration.logins import (
    CANARY,
    FORMS,
    GOOD,
    KAFKA,
    LOGINS,
    MARKER,
    NOWHERE,
    Form,
    Servers,
    WrittenPipeline,
    write_pipeline,
)
from tests.integration.traces import Channels, parts_of, spellings_of, traces
from tests.runner.spark.standalone import Cluster, cluster
from windrow.ingest.config.settings_file import _URLS
from windrow.ingest.kafka.allowed_properties import ALLOWED
from windrow.ingest.kafka.client_properties import LOG
from windrow.ingest.lookups.kinds import SOURCES as LOOKUPS
from windrow.ingest.settings.logins import Assertion, Login, OidcLogin
from windrow.ingest.settings.secrets import Secret, masked
from windrow.ingest.settings.values import Section
from windrow.ingest.sinks.kinds import KINDS as SINKS
from windrow.ingest.sinks.kit.files import put_if_absent

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    *map(pytest.mark.filterwarnings, DAGSTER_ITSELF),
]

WORKING = [name for name, login in LOGINS.items() if login.works]
NO_SECRET = {"oauth.azure_imds"}
"""Logins that have no secret."""


@pytest.fixture(scope="module")
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(request, tmp_path_factory.mktemp("servers"), stack)


@pytest.fixture(autouse=True)
def _new_clients() -> Iterator[None]:
    """Forgets clients of S3 that another test made with other keys."""
    put_if_absent.s3_client.cache_clear()
    yield
    put_if_absent.s3_client.cache_clear()


# ------------------------------------------------------------------------------------------- table


def settings_with_secrets() -> set[str]:
    """Returns the settings that take a secret.

    They are options of sections, client properties, fields of logins by token, and URLs.
    """
    for kind in (*SINKS.values(), *LOOKUPS.values()):
        import_module(kind.partition(":")[0])
    sections, settings = [Section], set[str]()
    while sections:
        section = sections.pop()
        sections += section.__subclasses__()
        hints = typing.get_type_hints(section, include_extras=True)
        settings |= {
            f"{section.__name__}.{name}"
            for name in section.__annotations__
            if name != "client" and _takes_a_secret(hints[name])
        }
    settings |= {f"client.{name}" for name, allowed in ALLOWED.items() if allowed.secret}
    settings |= {f"url.{name}" for name in _URLS}
    for login in get_args(Login):
        method = f"oauth.{login.__struct_config__.tag}"
        fields = [
            *msgspec.structs.fields(login),
            *(msgspec.structs.fields(Assertion) if login is OidcLogin else ()),
        ]
        secret_names = [f.name for f in fields if f.type is Any or f.name.endswith("_file")]
        settings |= {f"{method}.{name}" for name in secret_names} or {method}
    return settings


def _takes_a_secret(annotation: Any) -> bool:
    return annotation in (*get_args(Secret), *get_args(Login)) or any(
        map(_takes_a_secret, get_args(annotation))
    )


def test_each_login_has_an_entry() -> None:
    """Each setting that takes a secret has an entry in `LOGINS`, and each entry has a setting."""
    covered = {name for login in LOGINS.values() for name in login.covers}
    assert settings_with_secrets() - NO_SECRET == covered - {"environment.AWS"}


# -------------------------------------------------------------------------------------- spellings


def test_the_search_sees_each_spelling() -> None:
    """A secret is found in each spelling, between other bytes and in any channel."""
    for name, spelling in spellings_of(CANARY).items():
        channels = {"one": b"nothing", "other": b"\0" + spelling + b"Z"}
        assert {channel for channel, _, _ in traces(channels, [CANARY])} == {"other"}, name
    assert traces({"one": CANARY[:-1].encode()}, [CANARY]) == []


def test_a_mask_hides_each_spelling() -> None:
    """An error that repeats a secret as it was sent, or a token that nobody knows, is masked."""
    sent = {name: text for name, text in spellings_of(CANARY).items() if name in _SENT}
    assert sent.keys() == _SENT
    for name, spelling in sent.items():
        text = masked(f"<{spelling.decode()}>", [CANARY])
        assert traces({"error": text.encode()}, [CANARY]) == [], name
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJyZWFkZXIifQ.c2lnbmF0dXJlLW9mLWE"
    for text in (token, token[:50], f"Bearer {token[4:24]}"):
        assert masked(f"no {text}", []) in {"no ***", "no Bearer ***"}
    assert masked("basic authentication, eyJ", []) == "basic authentication, eyJ"


_SENT = {
    *("plain", "percent-encoded", "percent-encoded, lower", "percent-encoded but /", "of a form"),
    *("JSON", "JSON in JSON", "repr", "HTML"),
    *(f"base64+{shift}" for shift in range(3)),
    *(f"URL's base64+{shift}" for shift in range(3)),
}
"""The spellings in which clients send secrets, and errors repeat them."""


# ---------------------------------------------------------------------------------- in this process


class Watched:
    """Runs pipelines in this process, and keeps what they say."""

    def __init__(
        self,
        servers: Servers,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        self.servers, self.folder = servers, folder
        self._monkeypatch, self._caplog, self._capfd = monkeypatch, caplog, capfd
        caplog.set_level(logging.DEBUG, "windrow")

    def write(self, name: str, form: Form = "file", **options: Any) -> WrittenPipeline:
        """Writes a pipeline with a login, and sets its environment variables."""
        written = write_pipeline(self.servers, name, self.folder, form, **options)
        for variable, value in written.environment.items():
            self._monkeypatch.setenv(variable, value)
        return written

    def with_logs(self, channels: dict[str, bytes]) -> Channels:
        """Adds what was said.

        Only handlers of its own get librdkafka's log, which may quote what servers answer
        (`kafka.client_properties.LOG`).
        """
        out, err = self._capfd.readouterr()
        lines = [
            logging.Formatter().format(record)
            for record in self._caplog.records
            if record.name != LOG.name
        ]
        return channels | {"logs": "\n".join([out, err, *lines]).encode()}


@pytest.fixture
def watched(
    servers: Servers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> Watched:
    return Watched(servers, tmp_path, monkeypatch, caplog, capfd)


IN_DAGSTER = {
    *("plan", "receipt", "ledger", "metadata", "snapshot", "dagster", "dead letters"),
    *("reprs", "pickles", "prometheus", "logs"),
}
"""The channels of a run in Dagster with tasks in its process."""


@pytest.mark.long
@pytest.mark.parametrize("name", WORKING)
def test_a_run_leaves_no_trace(name: str, watched: Watched) -> None:
    """The secrets of a login that works are in no channel of a run.

    A word that the pipeline has in its names and messages is in each of them, so each was
    searched.
    """
    written = watched.write(name)
    channels = watched.with_logs(run_in_dagster(written))
    assert traces(channels, written.secrets) == []
    searched = {channel for channel, _, _ in traces(channels, [MARKER])}
    elsewhere = {"ledger"} if "state" in LOGINS[name].covers[0] else set()
    assert IN_DAGSTER - searched == elsewhere


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_reference_leaves_no_trace(form: Form, watched: Watched) -> None:
    """A password by variable, file, command or template is in no channel but its own task.

    A template's value travels with the task, as docs/clusters.md says.
    """
    written = watched.write("SCRAM", form)
    channels = watched.with_logs(run_in_dagster(written))
    with_secret = {channel for channel, _, _ in traces(channels, written.secrets)}
    assert with_secret == ({"pickles"} if form == "template" else set())


@pytest.mark.long
@pytest.mark.parametrize("name", ["SCRAM", "registry, oidc"])
def test_the_api_of_dagster_leaves_no_trace(name: str, watched: Watched) -> None:
    """The secrets of a login are in nothing that Dagster's pages show of definitions and runs."""
    written = watched.write(name)
    run_in_dagster(written)
    channels = {"API": api_of(written)}
    assert traces(channels, written.secrets) == []
    assert traces(channels, [MARKER])


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in WORKING if LOGINS[name].reads])
def test_the_search_sees_a_login_that_tells(name: str, watched: Watched) -> None:
    """A twin of `read` tells each secret: so the run reads the secrets that are searched for."""
    written = watched.write(name)
    with leaking_reads() as told:
        run_in_dagster(written)
    read = {part for _, part, _ in traces({"told": "\n".join(told).encode()}, written.secrets)}
    by_path = {"registry, key", "service, key"}  # the key itself is a file of the library
    assert read == set(parts_of(written.secrets[0])) | {
        part for secret in written.secrets[1:] if name not in by_path for part in parts_of(secret)
    }


FAILURES = ("damaged", "nowhere", "echo")
"""The ways in which a login fails.

Its secret has characters too many; its server doesn't answer; its server refuses the request, and
repeats it.
"""

FAILING = [
    (name, way)
    for name, login in LOGINS.items()
    for way in FAILURES
    if (way != "damaged" or (login.damaged and login.works))
    and (way != "echo" or login.server not in KAFKA)
]


def nowhere(name: str) -> str:
    """Returns an address where no server of this login is."""
    server = LOGINS[name].server
    scheme = {"provider": "https://", "registry": "https://", "service": "https://"}
    path = {"provider": "/token", "database": "/things"}
    web = {**scheme, "s3": "http://", "catalog": "http://"}
    return f"{web.get(server, '')}{NOWHERE}{path.get(server, '')}"


def fail(watched: Watched, name: str, way: str) -> tuple[WrittenPipeline, Channels]:
    """Runs a window whose login fails."""
    with ExitStack() as stack:
        options: dict[str, Any] = {"damaged": way == "damaged"}
        if way == "nowhere":
            options["address"] = nowhere(name)
        if way == "echo":
            options["address"] = stack.enter_context(watched.servers.echo(LOGINS[name].server))
        written = watched.write(name, **options)
        return written, watched.with_logs(run_and_fail(written))


@pytest.mark.long
@pytest.mark.parametrize(("name", "way"), FAILING)
def test_a_login_that_fails_leaves_no_trace(name: str, way: str, watched: Watched) -> None:
    """A login that fails ends in an error of windrow's own, and no channel has a secret.

    The channels have the errors of libraries behind it, as `--debug` shows them.
    """
    written, channels = fail(watched, name, way)
    assert traces(channels, written.secrets) == []
    assert b"BugError" not in channels["errors"]


ECHOING = ["oidc, secret", "registry, password", "registry, token", "registry, oidc"]
ECHOING += ["lookup, password", "ledger, password", "ledger, URL", "sink, password", "sink, URL"]
ECHOING += ["catalog, token", "catalog, credential"]


@pytest.mark.long
@pytest.mark.parametrize("name", ECHOING)
def test_the_search_sees_an_error_that_quotes(name: str, watched: Watched) -> None:
    """A twin whose errors aren't masked repeats the secret: so the server has repeated it."""
    with unmasked_errors():
        written, channels = fail(watched, name, "echo")
    with_secret = {channel for channel, _, _ in traces(channels, written.secrets)}
    assert "errors" in with_secret, channels["errors"][-900:]


# --------------------------------------------------------------------------------------- with Spark


ON_SPARK = {
    *("said", "ledger", "pickles", "spark", "processes", "environments", "table", "prometheus"),
}
"""The channels of a run on Spark."""


def assert_no_trace(
    written: WrittenPipeline, channels: Channels, *, expected: set[str] = ON_SPARK
) -> None:
    """Checks that no channel has a secret, and that each has the pipeline's word."""
    assert traces(channels, written.secrets) == []
    assert expected <= {channel for channel, _, _ in traces(channels, [MARKER])}


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("name", ["SCRAM", "oidc, secret", "registry, token", "service, token"])
def test_a_run_on_spark_leaves_no_trace(name: str, servers: Servers, tmp_path: Path) -> None:
    """The secrets of a login are in no setting, event log, page, file or command line of Spark."""
    written = write_pipeline(servers, name, tmp_path)
    channels = run_on_spark(written)
    assert f"valid={GOOD}," in channels["said"].decode()
    assert_no_trace(written, channels)


@pytest.mark.long
@pytest.mark.spark
def test_a_password_in_the_environment_of_spark(servers: Servers, tmp_path: Path) -> None:
    """A password in the environment is in no trace of Spark but the environment of processes.

    They are those of the same user, and workers log in with it.
    """
    written = write_pipeline(servers, "SCRAM", tmp_path, "env")
    channels = run_on_spark(written)
    assert f"valid={GOOD}," in channels["said"].decode()
    assert {channel for channel, _, _ in traces(channels, written.secrets)} == {"environments"}


@pytest.mark.long
@pytest.mark.spark
def test_a_run_that_fails_in_its_workers(servers: Servers, tmp_path: Path) -> None:
    """A password in a file is in no trace of a run that fails in its workers.

    The file changes before the workers read it, so the broker refuses them. Neither password is
    in a trace.
    """
    written = write_pipeline(servers, "SCRAM", tmp_path)
    file = written.folder / "secrets" / "secret"
    channels = run_on_spark(written, "--spoil", str(file))
    assert b"refuses to let this client read" in channels["said"]
    assert file.read_text().endswith(WRONG)
    assert_no_trace(written, channels, expected=ON_SPARK - {"table"})


@pytest.mark.long
@pytest.mark.spark
def test_the_search_of_spark_sees_a_template(servers: Servers, tmp_path: Path) -> None:
    """The value of a template travels with the task, and the search sees it there."""
    written = write_pipeline(servers, "SCRAM", tmp_path, "template")
    channels = run_on_spark(written)
    with_secret = {channel for channel, _, _ in traces(channels, written.secrets)}
    assert {"pickles", "environments"} <= with_secret


# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers with one core each and without windrow."""
    with cluster(tmp_path_factory.mktemp("cluster")) as spark_cluster:
        yield spark_cluster


def words_of(spark_cluster: Cluster) -> list[str]:
    """Returns the arguments that describe a cluster to the run."""
    pids = [str(process.pid) for process in spark_cluster.workers.values()]
    return ["--master", spark_cluster.master, *(w for pid in pids for w in ("--worker", pid))]


def contents_of(spark_cluster: Cluster) -> bytes:
    """Returns the pages of a cluster's master and workers, and all files in their folders.

    The files are logs, the executors' output and code.
    """
    [worker_folder, *_] = spark_cluster.workers
    pages = [
        re.findall(r"UI started at (http://\S+)|at (http://\S+:\d+)", log.read_text())
        for log in worker_folder.parent.rglob("*.log")
    ]
    shown = []
    for url in {url for matches in pages for pair in matches for url in pair if url}:
        for page in ("", "/json/"):
            with urllib.request.urlopen(url + page, timeout=30) as response:
                shown.append(response.read())
    assert len(shown) >= 6, "a page of the master or of a worker wasn't looked at"
    readable_files = [
        path
        for path in worker_folder.parent.rglob("*")
        if path.is_file() and not path.is_symlink() and "site-packages" not in path.parts
    ]
    assert [path for path in readable_files if path.name == "stderr"], "no executor said anything"
    return b"\n".join([*shown, *(path.read_bytes() for path in readable_files)])


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "fails"),
    [("SCRAM", False), ("SCRAM", True), ("token", False), ("registry, password", False)],
)
def test_a_run_on_a_cluster(
    servers: Servers, workers: Cluster, tmp_path: Path, name: str, fails: bool
) -> None:
    """A secret in a file is in nothing that a cluster's workers receive, print, show or keep.

    The broker accepts the workers, or refuses them.
    """
    written = write_pipeline(servers, name, tmp_path)
    spoil = ["--spoil", str(written.folder / "secrets" / "secret")] if fails else []
    channels = run_on_spark(written, *words_of(workers), *spoil) | {"cluster": contents_of(workers)}
    assert ("refuses to let this client read" if fails else f"valid={GOOD},") in channels[
        "said"
    ].decode()
    assert channels["environments"].count(b"SPARK_") > 1, "no executor was looked at"
    assert_no_trace(written, channels, expected=ON_SPARK - ({"table"} if fails else set()))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("name", ["SCRAM", "service, header"])
def test_a_run_by_spark_connect(
    servers: Servers, spark_server: str, tmp_path: Path, name: str
) -> None:
    """A secret in a file is in nothing that a client sends to a Spark Connect server."""
    written = write_pipeline(servers, name, tmp_path)
    channels = run_on_spark(written, "--connect", spark_server)
    assert f"valid={GOOD}," in channels["said"].decode()
    assert_no_trace(written, channels, expected=ON_SPARK - {"spark"})
