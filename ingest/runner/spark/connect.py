"""A Spark that is there already: tasks run on a Spark Connect server, which `windrow
spark run` keeps (`ingest.runner.spark.server`).

What is asked of it is what is asked of a session of one's own, by
`ingest.runner.spark.spark`. Here is what a server makes different: it may be away, made
anew, of another environment, or have let go of a session; and what is told to it must
not be heard by others.

The workers of a server are of its own environment, and so the client must be; or they
are a cluster's, and windrow's code travels to them with each job of a client, as from
any driver (`ingest.runner.spark.cluster`).
"""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.runner.spark.cluster import is_local, own_code, shipped
from windrow.ingest.runner.spark.spark import SparkEngine, SparkJob
from windrow.ingest.waiting import waiting_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORT = 15002
"""Spark Connect's own."""

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # a name, not a token  # noqa: S105
"""The environment variable in which Spark itself, server and client, looks for the
token that a client must know.
"""

ENVIRONMENT = "spark.windrow.environment"
"""The property in which a server says what it runs in: `environment`."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""This machine, by its names in an address."""

_BUFFER = "spark.sql.execution.pandas.udf.buffer.size"
"""The property of a session that becomes part of its workers' environment (SPARK_BUFFER_SIZE)."""

_BUFFER_BYTES, _KINDS = 65_536, 4_096
"""Spark's own size, and how many there may be above it."""

_ADDRESS = re.compile(
    r"sc://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>\d{1,5}))?/?(?P<tls>;use_ssl=true)?"
)


def environment() -> str:
    """What tasks are packed by, and must be unpacked by: windrow's code, this Python
    and Spark, by version and place.
    """
    code = Path(__file__).parents[3]
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        f"windrow {version('windrow-ingest')} in {code}, Python {python} of {sys.prefix}, Spark"
        f" {version('pyspark')}"
    )


def read_token(file: Path) -> str:
    """The token in a file that only its owner may read.

    Raises:
        SpecError: it can't be read, others may read it, or there isn't one line in it.
    """
    try:
        open_to_others = file.stat().st_mode & 0o077
        text = file.read_text(encoding="ascii")
    except (OSError, ValueError) as failed:
        why = failed.strerror if isinstance(failed, OSError) else "it isn't plain text"
        raise SpecError(
            f"The token file {file} can't be read: {why}",
            "spec",
            "Name a file with one line, the token.",
        ) from None
    if open_to_others:
        raise SpecError(
            f"The token file {file} may be read by others than its owner",
            "spec",
            f"Type: chmod 600 {file}",
        )
    token = text.strip()
    if not token or not token.isprintable() or " " in token:
        raise SpecError(
            f"The token file {file} doesn't hold a token",
            "spec",
            "Write one line into it, the token, without spaces.",
        )
    return token


@dataclass
class ConnectedSpark:
    """A session on a Spark Connect server, this client's own; it ends with `close`.

    `address`: `sc://HOST:PORT`. `token_file`: where the token is that the server asks
    for; None: in the environment, or it asks for none.
    """

    address: str
    token_file: Path | None = None
    _session: Any = field(default=None, repr=False)
    _elsewhere: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        """Check the address.

        Raises:
            SpecError: it is none, holds more than a place, or would have what is secret
                travel in the clear.
        """
        _as_spark_has_it(self.address)

    def engine(self) -> SparkEngine:
        """Where tasks run: there."""
        return SparkEngine(self.session, parallelism, self._fitted)

    def _fitted(self, job: SparkJob) -> Any:
        """The job as the workers of the session want it."""
        return shipped(job) if self._elsewhere else job

    def session(self) -> SparkSession:
        """The session, made if there is none, and made anew if the server has let go of
        it: after an hour without a word, or a new start.

        Raises:
            SpecError: the packages for it aren't installed, or there is no token in the
                file.
            UnreachableError: no server answers there, it is of another environment, or
                it doesn't know the token.
        """
        session: Any = self._session
        if session is not None:
            try:
                return self._greeted(session)
            except UnreachableError:
                self.close()
        self._session = self._opened()
        begun = self._greeted(self._session)
        if self._elsewhere:
            begun.conf.set(_BUFFER, str(buffer_bytes(own_code().digest)))
        return begun

    def close(self) -> None:
        """End the session, here and on the server."""
        session, self._session = self._session, None
        if session is not None:
            end_session(session)

    def _opened(self) -> Any:
        """A session of this client's own. Nothing is asked yet."""
        try:
            from pyspark.sql.connect.client import (
                DefaultChannelBuilder,
            )  # gRPC is loaded only where it is used
            from pyspark.sql.connect.client.retries import DefaultPolicy
            from pyspark.sql.connect.session import SparkSession
        except ImportError as missing:
            what = "Spark Connect's packages are not installed"
            raise SpecError(
                what, "spec", "Install windrow[connect], or pyspark[connect]."
            ) from missing
        builder = DefaultChannelBuilder(_as_spark_has_it(self.address))
        if self.token_file is not None:
            builder.set(builder.PARAM_TOKEN, read_token(self.token_file))
        # beside the error, which is told in a sentence
        warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
        session = SparkSession(builder)
        # A call is repeated for three seconds; by Spark's own policy for ten minutes.
        patience = DefaultPolicy(
            max_retries=4, initial_backoff=100, backoff_multiplier=3.0, max_backoff=2000, jitter=100
        )
        session.client.set_retry_policies([patience])
        return session

    def _greeted(self, session: Any) -> SparkSession:
        """The session, once the server has said that it is there, who it is and where
        its workers are.
        """
        from pyspark.errors import PySparkException  # as above

        try:
            with waiting_for(f"the Spark at {self.address}"):
                said, self._elsewhere = (
                    session.conf.get(ENVIRONMENT, None),
                    not is_local(session.conf.get("spark.master", "")),
                )
            differs = _difference(said, session.version if self._elsewhere else None)
        except PySparkException as failed:
            if "UNAUTHENTICATED" in str(failed):
                what = (
                    f"The Spark Connect server at {self.address} doesn't take the token, or"
                    " wants one"
                )
                do = f"Give the server's: by {TOKEN} in the environment, or by a file."
            else:
                what, do = (
                    f"No Spark Connect server answers at {self.address}",
                    "Start it (windrow spark run), or wait until it is up.",
                )
            raise UnreachableError(
                what, "setup", f"{do} Nothing was read or committed."
            ) from failed
        if differs is not None:
            do = (
                "Nothing was read or committed. End it, and start it with this environment's"
                " `windrow spark run`."
            )
            raise UnreachableError(
                f"The Spark Connect server at {self.address} {differs}", "setup", do
            )
        return session  # type: ignore[no-any-return]  # pyspark's two kinds of sessions have one interface


def session_beside(session: Any) -> SparkSession:
    """Another session of a client, on the same server: as patient, with workers of the
    same code, and with nothing else of the first.
    """
    beside = session.newSession()
    beside.client.set_retry_policies(session.client.get_retry_policies())
    beside.conf.set(_BUFFER, session.conf.get(_BUFFER))
    return beside  # type: ignore[no-any-return]  # as above


def end_session(session: Any) -> None:
    """End a session, here and on the server."""
    session.client.set_retry_policies([])  # a server that is gone has ended it, too
    session.stop()


def _difference(said: str | None, spark: str | None) -> str | None:
    """How a server isn't as this client is; None if it is. Pure but for what this environment is.

    `said`: its environment, which its own workers have. `spark`: the version of it that
    counts alone where workers are a cluster's: they get windrow's code, and are held
    against the client themselves (`ingest.runner.spark.worker_bootstrap`).
    """
    if said is None:
        return f"was not begun by `windrow spark run`, and this is {environment()}"
    if spark is None:
        return None if said == environment() else f"runs {said}, and this is {environment()}"
    return (
        None
        if spark == version("pyspark")
        else f"runs Spark {spark}, and this client has {version('pyspark')}"
    )


def buffer_bytes(digest: str) -> int:
    """How large a buffer the workers of a client have, by the digest of its code.

    Spark gives a task to any idle worker of the environment that the task wants, and of
    a client nothing but numbers of this kind goes into it. So workers that have loaded
    another client's windrow aren't asked (but by one client in thousands; then they
    end, see `Code`).
    """
    return _BUFFER_BYTES + int(digest[:8], 16) % _KINDS


def _as_spark_has_it(address: str) -> str:
    """The address for Spark's client, which sends a token by TLS alone, or to a server
    that is called localhost.

    Raises:
        SpecError: as `ConnectedSpark`.
    """
    told = _ADDRESS.fullmatch(address)
    if told is None or int(told["port"] or PORT) not in range(1, 65536):
        what = (
            "A Spark Connect server's address is sc://HOST:PORT, on another machine with"
            " ;use_ssl=true behind it, and this is none"
        )
        do = (
            f"Name it like sc://localhost:{PORT}. A token goes into the environment ({TOKEN}), or"
            " into a file of its own."
        )
        raise SpecError(what, "spec", do)
    here, tls = told["host"] in LOOPBACK, told["tls"] or ""
    if not here and not tls:
        what = (
            f"What is sent to {address} would travel in the clear, the secrets of a pipeline's"
            " client among it"
        )
        raise SpecError(
            what,
            "spec",
            "Reach it by TLS, with ;use_ssl=true behind the address, or run a server on this"
            " machine.",
        )
    return f"sc://{'localhost' if here and not tls else told['host']}:{told['port'] or PORT}/{tls}"


def parallelism(session: SparkSession) -> int:
    """How many tasks the server runs at once: so many parts it gives to a range of
    which nobody says how many.
    """
    plan = session.range(1 << 20)._explain_string()  # type: ignore[operator]  # Connect has no other word for it  # noqa: SLF001
    parts = re.search(r"splits=(\d+)", plan)
    return int(parts[1]) if parts else 1
