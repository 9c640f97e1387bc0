"""Each kind of login that a pipeline can have, with the server that it is for.

`test_canary.py` runs a pipeline with each, and searches for its secrets. A setting of the spec
that takes a secret needs an entry in `LOGINS`, or a test is red.
"""

from __future__ import annotations

import json
import ssl
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.parse import quote

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from joserfc import jwt

from tests.formats.confluent.registries import framed
from tests.integration.echo import echoing, echoing_postgres
from tests.integration.harness import millis
from tests.kafka.listener import TLS, server_context
from tests.kafka.oidc import CLIENT, SECRET, Provider
from tests.kafka.produce import Put, create_topic, produce
from tests.kafka.secure import PASSWORD, SecureBroker, certificate, client
from tests.kafka.tokens import bearer
from tests.registry.server import RegistryServer
from tests.sinks.postgres.server.server import TlsServer, tls_server
from windrow.ingest.kafka.embedded.server import find_jars

MARKER = "m4rker"
"""A word in the names of each pipeline, its topic and its folder, and in its messages."""

CANARY = 'C4nary/of"a+login%20\\9='
"""A secret that each spelling writes in another way."""

CA = str(TLS / "broker.pem")
NOWHERE = "127.0.0.1:1"
HOUR = "2026-01-05T01:00:00Z"
GOOD = 20
_USER = "by_password"
"""The user of the databases, whose password is `CANARY`."""

MODELS = """\
import pandera.polars as pa
import polars as pl


class Thing(pa.DataFrameModel):
    id: pl.Int64 = pa.Field(ge=0)
    name: pl.String = pa.Field(nullable=True)


class Place(pa.DataFrameModel):
    id: pl.Int64
    city: pl.String = pa.Field(nullable=True)
"""

Form = Literal["file", "env", "command", "template"]
FORMS: tuple[Form, ...] = ("file", "env", "command", "template")
"""The ways to refer to a secret."""


@dataclass(frozen=True)
class References:
    """References to the secrets of a login.

    Attributes:
        folder: the folder with a file for each secret.
        form: the way to refer to a secret.
    """

    folder: Path
    form: Form

    def __call__(self, name: str) -> Any:
        """Returns the reference to a secret."""
        file, variable = str(self.file(name)), self.variable(name)
        forms: dict[Form, Any] = {
            "file": {"file": file},
            "env": {"env": variable},
            "command": {
                "command": [sys.executable, "-Sc", f"print(open({file!r}).read())"],
                "lifetime_seconds": 1,
            },
            "template": f"{{{{ env.{variable} }}}}",
        }
        return forms[self.form]

    def file(self, name: str) -> Path:
        """Returns the file with a secret."""
        return self.folder / name

    def variable(self, name: str) -> str:
        """Returns the environment variable with a secret."""
        return f"CANARY_{name.upper()}"

    def in_url(self) -> str:
        """Returns the template of the secret as a URL's password."""
        return f"{{{{ env.{self.variable('quoted')} }}}}"


@dataclass(frozen=True)
class Login:
    """A kind of login.

    Attributes:
        covers: the settings that are its secrets, as `test_each_login_has_an_entry` names them.
        server: the attribute of `Servers` with the address that it is for.
        sections: makes the parts of the pipeline, from the address and the references.
        secrets: makes the secrets by their names.
        works: whether a server here accepts it, so that a window can be run.
        reads: whether `settings.secrets.read` reads it; else a library or a template does.
        variables: names of environment variables that have secrets, by the secrets' names.
        damaged: whether a damaged secret fails; a library may ignore it.
    """

    covers: tuple[str, ...]
    server: str
    sections: Callable[[str, References], dict[str, Any]]
    secrets: Callable[[Servers], dict[str, str]] = lambda _: {"secret": CANARY}
    works: bool = True
    reads: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)
    damaged: bool = True


class Servers:
    """The servers of all logins, each started when a login first needs it."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> None:
        self._fixture, self._folder, self._stack = request.getfixturevalue, folder, stack

    @cached_property
    def broker(self) -> SecureBroker:
        broker = self._stack.enter_context(SecureBroker(self._folder / "broker", find_jars()))
        assert isinstance(broker, SecureBroker)
        return broker

    @cached_property
    def plain(self) -> str:
        bootstrap: str = self._fixture("kafka")
        return bootstrap

    @property
    def secure(self) -> str:
        return self.broker.secure

    @property
    def mutual(self) -> str:
        return self.broker.mutual

    @property
    def bearer(self) -> str:
        return self.broker.bearer

    @cached_property
    def oidc(self) -> Provider:
        return self._stack.enter_context(Provider(self.broker.tokens, 3600).running())

    @property
    def provider(self) -> str:
        return self.oidc.token_url

    @cached_property
    def registry(self) -> str:
        server = self._stack.enter_context(RegistryServer(tls=server_context(asks_clients=False)))
        fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
        record = {"type": "record", "name": "Thing", "fields": fields}
        server.register("value", json.dumps(record))
        return server.url

    @cached_property
    def service(self) -> str:
        return self._stack.enter_context(answering(server_context()))

    @cached_property
    def _postgresql(self) -> TlsServer:
        folder = self._stack.enter_context(TemporaryDirectory(prefix="windrow-tls-"))
        server = self._stack.enter_context(tls_server(Path(folder)))
        server.set_password(_USER, CANARY)
        return server

    @property
    def database(self) -> str:
        """A new database of `_USER`: the part of its URL behind the user."""
        server, name = self._postgresql, f"db_{uuid.uuid4().hex[:12]}"
        server.run(f"CREATE DATABASE {name} OWNER {_USER}", "postgres")
        statements = (
            "CREATE TABLE places AS SELECT n AS id, 'Kyiv' AS city FROM generate_series(0, 9) n",
            f"GRANT SELECT ON places TO {_USER}",
        )
        server.run("; ".join(statements), name)
        return server.url("").partition("@")[2].replace("/shop?", f"/{name}?")

    @cached_property
    def catalog(self) -> str:
        return "http://" + NOWHERE

    @cached_property
    def s3(self) -> str:
        return f"http://127.0.0.1:{self._fixture('s3_server').port}"

    def bucket(self) -> str:
        """Makes a new bucket, and returns its URL."""
        bucket: str = self._fixture("s3_server").bucket()
        return bucket

    @property
    def s3_key(self) -> str:
        key: str = self._fixture("s3_server").secret
        return key

    @cached_property
    def key(self) -> str:
        """The key of the clients' certificate, encrypted."""
        key = serialization.load_pem_private_key((TLS / "broker.key.pem").read_bytes(), None)
        return key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(CANARY.encode()),
        ).decode()

    @contextmanager
    def echo(self, server: str) -> Iterator[str]:
        """Runs a server in the place of another one that repeats what it is sent.

        Yields:
            Its address, in the form of the other one.
        """
        if server == "database":
            with echoing_postgres() as address:
                yield f"{address}/things"
            return
        tls = None if server in {"s3", "catalog"} else server_context()
        with echoing(403 if server == "s3" else 400, tls) as http:
            yield http.url


@contextmanager
def answering(tls: ssl.SSLContext) -> Iterator[str]:
    """Runs a service that has a city for each id."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer = json.dumps({"id": int(self.path.rpartition("/")[2]), "city": "Kyiv"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # its name  # noqa: A002
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(60)


# --------------------------------------------------------------------------------------------------


def _oidc(address: str, **login: Any) -> dict[str, Any]:
    return {"client": bearer(method="oidc", token_url=address, ca=CA, **login)}


def _assertion(servers: Servers) -> str:
    claims = {"iss": CLIENT, "sub": CLIENT, "aud": servers.provider, "exp": 2**31, "iat": 1}
    return jwt.encode({"alg": "RS256"}, claims, servers.oidc.assertion_key)


def _registry(address: str, **login: Any) -> dict[str, Any]:
    return {
        "registry": {"url": address, "ca": CA, "retries": 0, "timeout": "3s", **login},
        "decode": {"format": "avro-confluent", "schema": "models.py:Thing", "records": ["Thing"]},
    }


def _look_up(**source: Any) -> dict[str, Any]:
    step = {"lookup": "places", "key": {"id": "id"}, "take": {"city": "city"}, "from": source}
    return {"transform": {"steps": [step]}}


def _ask(address: str, **login: Any) -> dict[str, Any]:
    url = f"{address}/places/{{id}}"
    tls = {"ca": CA, **login.pop("tls", {})}
    return _look_up(http=url, schema="models.py:Place", timeout="1s", tls=tls, **login)


def _iceberg(**catalog: Any) -> dict[str, Any]:
    return {"sink": {"kind": "iceberg", "table": f"{MARKER}.things", "catalog": catalog}}


def _database(address: str, password: str = "") -> str:
    return f"postgresql://{_USER}{password and ':'}{password}@{address}"


def _into_database(url: str, **login: Any) -> dict[str, Any]:
    table = {"table": f"{MARKER}_things", "staging": "./staging"}
    return {"sink": {"kind": "postgres", "url": url, **table, **login}}


def _aws(address: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "windrow",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


_KEYS = {"secret": "AWS_SECRET_ACCESS_KEY", "session": "AWS_SESSION_TOKEN"}


def _s3(address: str, kind: str) -> dict[str, Any]:
    """Returns a table in a bucket, whose name `write_pipeline` fills in."""
    return {"sink": {"kind": kind, "path": "BUCKET/things"}, "env": _aws(address)}


LOGINS: Mapping[str, Login] = {
    "SCRAM": Login(
        ("client.sasl.password",),
        "secure",
        lambda _, refer: {"client": client(refer("secret"))},
        lambda _: {"secret": PASSWORD},
    ),
    "PLAIN": Login(
        ("client.sasl.password",),
        "secure",
        lambda _, refer: {"client": client(refer("secret")) | {"sasl.mechanism": "PLAIN"}},
        lambda _: {"secret": PASSWORD},
    ),
    "keystore": Login(
        ("client.ssl.keystore.password",),
        "mutual",
        lambda _, refer: {
            "client": certificate("PKCS#12") | {"ssl.keystore.password": refer("secret")}
        },
        lambda _: {"secret": PASSWORD},
    ),
    "key": Login(
        ("client.ssl.key.pem", "client.ssl.key.password"),
        "mutual",
        lambda _, refer: {
            "client": certificate("texts")
            | {"ssl.key.pem": refer("key"), "ssl.key.password": refer("secret")}
        },
        lambda servers: {"secret": CANARY, "key": servers.key},
    ),
    "oidc, secret": Login(
        ("oauth.oidc.client_secret",),
        "provider",
        lambda address, refer: _oidc(address, client_id=CLIENT, client_secret=refer("secret")),
        lambda _: {"secret": SECRET},
    ),
    "oidc, key": Login(
        ("oauth.oidc.key", "oauth.oidc.key_password"),
        "provider",
        lambda address, refer: _oidc(
            address,
            assertion={
                "key": refer("key"),
                "key_password": refer("secret"),
                "issuer": CLIENT,
                "subject": CLIENT,
                "audience": address,
            },
        ),
        lambda servers: {
            "secret": CANARY,
            "key": servers.oidc.assertion_key.as_pem(private=True, password=CANARY).decode(),
        },
    ),
    "oidc, statement": Login(
        ("oauth.oidc.token_file",),
        "provider",
        lambda address, refer: _oidc(address, assertion={"token_file": str(refer.file("secret"))}),
        lambda servers: {"secret": _assertion(servers)},
        reads=False,
    ),
    "token": Login(
        ("oauth.token.token",),
        "bearer",
        lambda _, refer: {"client": bearer(method="token", token=refer("secret"))},
        lambda servers: {"secret": servers.broker.tokens.issue(3600)},
    ),
    "MSK": Login(
        ("oauth.aws_msk_iam",),
        "bearer",
        lambda address, _: {
            "client": bearer(method="aws_msk_iam", region="eu-central-1"),
            "env": _aws("http://" + address),
        },
        lambda _: {"secret": CANARY, "session": f"session-{CANARY}"},
        works=False,
        reads=False,
        variables=_KEYS,
    ),
    "registry, password": Login(
        ("_RegistryAddress.password",),
        "registry",
        lambda address, refer: _registry(address, username="me", password=refer("secret")),
        damaged=False,
    ),
    "registry, token": Login(
        ("_RegistryAddress.token",),
        "registry",
        lambda address, refer: _registry(address, token=refer("secret")),
        damaged=False,
    ),
    "registry, oidc": Login(
        ("_RegistryAddress.oauth",),
        "provider",
        lambda address, refer: _registry(
            "REGISTRY",
            oauth={
                "method": "oidc",
                "token_url": address,
                "client_id": CLIENT,
                "client_secret": refer("secret"),
                "ca": CA,
            },
        ),
        lambda _: {"secret": SECRET},
    ),
    "registry, key": Login(
        ("TlsSection.key_password",),
        "registry",
        lambda address, refer: _registry(
            address, certificate=CA, key=str(refer.file("key")), key_password=refer("secret")
        ),
        lambda servers: {"secret": CANARY, "key": servers.key},
    ),
    "service, token": Login(
        ("HttpSection.token",),
        "service",
        lambda address, refer: _ask(address, token=refer("secret")),
        damaged=False,
    ),
    "service, header": Login(
        ("HttpSection.headers",),
        "service",
        lambda address, refer: _ask(address, headers={"x-api-key": refer("secret")}),
        damaged=False,
    ),
    "service, key": Login(
        ("TlsSection.key_password",),
        "service",
        lambda address, refer: _ask(
            address,
            tls={
                "certificate": CA,
                "key": str(refer.file("key")),
                "key_password": refer("secret"),
            },
        ),
        lambda servers: {"secret": CANARY, "key": servers.key},
    ),
    "lookup, password": Login(
        ("SqlSection.password",),
        "database",
        lambda address, refer: _look_up(
            sql=_database(address), relation="places", password=refer("secret")
        ),
    ),
    "ledger, password": Login(
        ("PipelineSpec.state_password", "_LedgerPassword.password"),
        "database",
        lambda address, refer: {"state": _database(address), "state_password": refer("secret")},
    ),
    "ledger, URL": Login(
        ("url.state",),
        "database",
        lambda address, refer: {"state": _database(address, refer.in_url())},
        reads=False,
    ),
    "sink, password": Login(
        ("PostgresSection.password",),
        "database",
        lambda address, refer: _into_database(_database(address), password=refer("secret")),
    ),
    "sink, password by name": Login(
        ("PostgresSection.password", "SharedSpec.secrets"),
        "database",
        lambda address, refer: {
            "secrets": {"shop": refer("secret")},
            **_into_database(_database(address), password={"secret": "shop"}),
        },
    ),
    "sink, URL": Login(
        ("url.url",),
        "database",
        lambda address, refer: _into_database(_database(address, refer.in_url())),
        reads=False,
    ),
    "catalog, URL": Login(
        ("IcebergSection.catalog", "url.uri"),
        "database",
        lambda address, refer: _iceberg(
            type="sql",
            uri=_database(address, refer.in_url()).replace("://", "+psycopg://"),
            warehouse="WAREHOUSE",
        ),
        reads=False,
    ),
    "catalog, token": Login(
        ("IcebergSection.catalog",),
        "catalog",
        lambda address, refer: _iceberg(type="rest", uri=address, token=refer("secret")),
        works=False,
    ),
    "catalog, credential": Login(
        ("IcebergSection.catalog",),
        "catalog",
        lambda address, refer: _iceberg(
            type="rest",
            uri=address,
            credential=refer("pair"),
            **{"oauth2-server-uri": f"{address}/v1/oauth/tokens"},
        ),
        lambda _: {"secret": CANARY, "pair": f"me:{CANARY}"},
        works=False,
    ),
    "catalog of a lookup": Login(
        ("TableSection.catalog",),
        "catalog",
        lambda address, refer: _look_up(
            table="shop.places", catalog={"type": "rest", "uri": address, "token": refer("secret")}
        ),
        works=False,
    ),
    "S3, files": Login(
        ("environment.AWS",),
        "s3",
        lambda address, _: _s3(address, "files"),
        lambda servers: {"secret": servers.s3_key, "session": f"session-{CANARY}"},
        reads=False,
        variables=_KEYS,
        damaged=False,
    ),
    "S3, Delta": Login(
        ("environment.AWS",),
        "s3",
        lambda address, _: _s3(address, "delta"),
        lambda servers: {"secret": servers.s3_key, "session": f"session-{CANARY}"},
        reads=False,
        variables=_KEYS,
        damaged=False,
    ),
    "producer": Login(
        ("client.sasl.password",),
        "secure",
        lambda _, refer: {
            "client": client(refer("secret")),
            "sink": {
                "kind": "kafka",
                "cluster": "prod",
                "topic": "TARGET",
                "staging": "./staging",
            },
            "dead_letters": {"cluster": "prod", "topic": "DEAD"},
        },
        lambda _: {"secret": PASSWORD},
    ),
}

KAFKA = {"secure", "mutual", "bearer"}
"""The servers that are a port of the broker."""


@dataclass(frozen=True)
class WrittenPipeline:
    """A pipeline's files, with a topic whose messages are there.

    Attributes:
        folder: its folder. The folder `secrets` in it has what each reference leads to.
        secrets: the texts that must be nowhere else.
        environment: the environment variables that it needs.
    """

    folder: Path
    secrets: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def spec(self) -> Path:
        return self.folder / "spec.yaml"


def write_pipeline(
    servers: Servers,
    name: str,
    folder: Path,
    form: Form = "file",
    address: str | None = None,
    *,
    damaged: bool = False,
) -> WrittenPipeline:
    """Writes the files of a pipeline with a login, and its messages.

    Args:
        servers: the servers.
        name: the login's name in `LOGINS`.
        folder: the folder for the pipeline's own.
        form: how the spec refers to the secrets.
        address: the address of the login's server; None for the real one.
        damaged: whether each secret has characters too many.
    """
    login, folder = LOGINS[name], folder / MARKER
    refer = References(folder / "secrets", form)
    refer.folder.mkdir(parents=True)
    secrets = {
        key: text.replace("-----\n", "-----\nAAAA", 1)
        if damaged and "\n" in text
        else text + "x" * damaged
        for key, text in login.secrets(servers).items()
    }
    for key, text in secrets.items():
        refer.file(key).write_text(text)
    server = address or getattr(servers, login.server)
    sections = login.sections(server, refer)
    if "client" in sections:
        clear = servers.broker.bootstrap
        bootstrap = server if login.server in KAFKA else servers.bearer
    else:
        clear = bootstrap = servers.plain
    topics = [create_topic(clear, name=f"{MARKER}-{uuid.uuid4().hex[:12]}") for _ in range(3)]
    _produce(clear, topics[0], is_avro="registry" in sections)
    cluster = {"bootstrap_servers": bootstrap}
    cluster |= {part: sections[part] for part in ("client", "registry") if part in sections}
    shared = {"clusters": {"prod": cluster}}
    shared |= {"secrets": sections["secrets"]} if "secrets" in sections else {}
    spec = {
        "id": f"{MARKER}_things",
        "source": {"cluster": "prod", "topic": topics[0]},
        "window": {"grid": "hourly", "start": "2026-01-05T00:00:00Z", "delay": "1m"},
        "decode": {"schema": "models.py:Thing"},
        "sink": {"kind": "files", "path": "./table"},
        "state": "./state.db",
        "limits": {"max_dead_ratio": 0.5},
        **{part: sections[part] for part in sections.keys() - {*cluster, *shared, "env"}},
    }
    text_by_placeholder = {
        "TARGET": topics[1],
        "DEAD": topics[2],
        "WAREHOUSE": (folder / "lake").as_uri(),
    }
    if "BUCKET" in str(spec):
        text_by_placeholder["BUCKET"] = servers.bucket()
    if "REGISTRY" in str(cluster):
        text_by_placeholder["REGISTRY"] = servers.registry
    (folder / "models.py").write_text(MODELS)
    for file, content in {"windrow.yaml": shared, "spec.yaml": spec}.items():
        text = yaml.safe_dump(content)
        for placeholder, value in text_by_placeholder.items():
            text = text.replace(placeholder, value)
        (folder / file).write_text(text)
    variables = {refer.variable(key): text for key, text in secrets.items()}
    variables[refer.variable("quoted")] = quote(secrets.get("secret", ""), safe="")
    if form == "file" and login.reads:
        variables.clear()
    variables |= {variable: secrets[key] for key, variable in login.variables.items()}
    return WrittenPipeline(
        folder, tuple(secrets.values()), variables | sections.get("env", {}) | _metrics(folder)
    )


def _produce(bootstrap: str, topic: str, *, is_avro: bool) -> None:
    """Writes the hour's messages, one of which becomes a dead letter, and one of a later hour."""
    values = [
        framed(1, bytes([2 * n, 2, 2]) + b"x")
        if is_avro
        else json.dumps({"id": n, "name": "x"}).encode()
        for n in range(GOOD)
    ]
    puts = [Put(value, millis(1, n)) for n, value in enumerate(values)]
    produce(bootstrap, topic, [*puts, Put(f"no json: {MARKER}".encode(), millis(1, 30))])
    produce(bootstrap, topic, [Put(b"{}", millis(3))])


def _metrics(folder: Path) -> dict[str, str]:
    (folder / "metrics").mkdir()
    return {"WINDROW_METRICS": str(folder / "metrics")}
