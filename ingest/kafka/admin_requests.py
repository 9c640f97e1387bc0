"""Requests of an AdminClient: repeated while that helps, with errors for the user.

Each result is taken out of its own future. An error is worth another try (the leader moves,
the network broke), or it is raised at once (no such topic, no right to see it).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # untyped
    ConfigResource,
    ListOffsetsResultInfo,
    ResourceType,
)

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.kafka.allowed_properties import WHERE_TO_SET
from windrow.ingest.kafka.error_codes import (
    FORBIDDEN,
    LOGIN,
    LOGIN_ADVICE,
    RETRIABLE,
    UNKNOWN,
    UNSEEN,
    is_login_refused,
    lacks_token,
    login_advice,
    untrusted,
)
from windrow.ingest.kafka.rights import Right, lacking_error
from windrow.ingest.kafka.shared_clients import CLIENTS, Client
from windrow.ingest.kafka.timeouts import (
    AGAIN_SECONDS,
    ERROR_POLL_SECONDS,
    NEW_TOPIC_SECONDS,
    OTHER_BROKERS_SECONDS,
    REQUEST_SECONDS,
)
from windrow.ingest.retry import growing_waits, retry
from windrow.ingest.waiting import waiting_for

NO_OFFSET = -1
"""The offset that Kafka returns if no message has a timestamp at or after an instant."""

T = TypeVar("T")
K = TypeVar("K")


class Questions:
    """Sends requests by a cluster's shared client, each for a bounded time.

    Used by one thread; the client may be used by others.
    """

    def __init__(self, bootstrap: str, client: Client, patience: float) -> None:
        """Sends no request yet.

        Args:
            bootstrap: the cluster's address, for errors.
            client: the client; after a failure for good, `CLIENTS` drops it.
            patience: how long a request is repeated before it fails, in seconds.
        """
        self.patience = patience
        self.admin = client.admin
        self._client = client
        self._bootstrap = bootstrap
        self._topic_may_be_new = False
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Timeout of one request."""
        return min(REQUEST_SECONDS, self.patience)

    def cluster_id(self) -> str:
        """Asks for the cluster's id."""
        described = self.ask(
            "the cluster's id",
            None,
            lambda: self.result(self.admin.describe_cluster(request_timeout=self.seconds)),
        )
        return str(described.cluster_id)

    def topics(self, names: Sequence[str], *, may_be_new: bool = True) -> dict[str, Any]:
        """Asks for the descriptions of topics and this client's rights; see `results`."""
        if not names:
            return {}
        futures = self.admin.describe_topics(
            TopicCollection(list(names)),
            include_authorized_operations=True,
            request_timeout=self.seconds,
        )
        return self.results(futures, may_be_new=may_be_new)

    def settings(self, names: Sequence[str]) -> dict[str, Any]:
        """Asks for the settings of topics; see `results`."""
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        futures = self.admin.describe_configs(resources, request_timeout=self.seconds)
        return self.results({resource.name: future for resource, future in futures.items()})

    def results(self, futures: Mapping[K, Future[Any]], *, may_be_new: bool = True) -> dict[K, Any]:
        """Returns the result of each future, or the KafkaException that is about its key alone.

        Args:
            futures: the futures of the request.
            may_be_new: True if an unknown topic is asked for again for a moment.

        Raises:
            KafkaException: an error that is about all keys, or is worth another try.
            TimeoutError: no answer.
        """
        result_by_key: dict[K, Any] = {}
        for key, future in futures.items():
            try:
                result_by_key[key] = self.result(future)
            except KafkaException as why:
                error = why.args[0]
                if error.code() not in UNSEEN or (may_be_new and self.is_retriable(error)):
                    raise
                result_by_key[key] = why
        return result_by_key

    def groups(self, names: Sequence[str]) -> dict[str, Any]:
        """Asks for the descriptions of groups and this client's rights; see `results`."""
        if not names:
            return {}
        futures = self.admin.describe_consumer_groups(
            list(names), include_authorized_operations=True, request_timeout=self.seconds
        )
        return self.results(futures)

    def result(self, future: Future[T]) -> T:
        """Waits for a future's value; stops waiting when the cluster has refused the login.

        If the connection breaks while librdkafka lists offsets, its result has neither an
        offset nor an error. Taken for an offset, it would say that a log is empty.

        librdkafka ends the request itself after its timeout. The deadline here is for a
        future that librdkafka never completes.

        Raises:
            KafkaException: the request failed, or the cluster doesn't let this client in.
            TimeoutError: no answer.
        """
        deadline = time.monotonic() + self.seconds + 5
        while True:
            wait([future], ERROR_POLL_SECONDS)
            self.admin.poll(0)  # delivers the client's errors and logs
            if future.done() or self._client_refused or time.monotonic() > deadline:
                break
        if not future.done() and self._client_refused:
            code = (
                KafkaError._SSL
                if self._login_error is None
                else KafkaError.SASL_AUTHENTICATION_FAILED
            )
            raise KafkaException(KafkaError(code))
        value = future.result(0)
        if isinstance(value, ListOffsetsResultInfo) and value.offset < NO_OFFSET:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return value

    def is_retriable(self, error: KafkaError) -> bool:
        """Returns whether the request is worth another try after this error."""
        return not self._client_refused and (
            error.code() in RETRIABLE or (error.code() in UNKNOWN and self._topic_may_be_new)
        )

    def ask(
        self,
        subject: str,
        topic: str | None,
        question: Callable[[], T],
        rights: Sequence[Right] = (),
    ) -> T:
        """Sends a request, repeats it while that helps, and returns the answer.

        Args:
            subject: what is asked for, in words for errors.
            topic: the topic or topics of the request, for errors.
            question: sends the request and waits for the answer.
            rights: what this client needs, if it isn't Read on the topic.

        Raises:
            SpecError: the request failed, and another try won't help.
            UnreachableError: no answer within the patience.
        """

        def is_worth_retry(error: Exception) -> bool:
            return (
                self.is_retriable(error.args[0])
                if isinstance(error, KafkaException)
                else isinstance(error, TimeoutError)
            )

        began = self._began = time.monotonic()
        try:
            with waiting_for(
                lambda: (
                    f"{self._bootstrap} to tell {subject}: {self.client_error or 'no answer yet'}"
                )
            ):
                return retry(
                    lambda: self._ask_while_new(question, began),
                    is_worth_retry,
                    growing_waits(began + self.patience),
                )
        except TimeoutError:
            raise self.unreachable(subject, topic, "no answer") from None
        except KafkaException as why:
            raise self.error_for(subject, topic, why.args[0], rights) from None

    def _ask_while_new(self, question: Callable[[], T], began: float) -> T:
        """Sends the request, and repeats it for a moment while the topic is unknown.

        The topic may be so new that not every broker knows it. The brokers do answer, so these
        tries don't make the waits between retries grow.
        """
        while True:
            self._topic_may_be_new = time.monotonic() - began < NEW_TOPIC_SECONDS
            try:
                return question()
            except KafkaException as why:
                if not self._topic_may_be_new or why.args[0].code() not in UNKNOWN:
                    raise
            time.sleep(AGAIN_SECONDS)

    def error_for(
        self, subject: str, topic: str | None, error: KafkaError, rights: Sequence[Right] = ()
    ) -> SpecError | UnreachableError:
        """Makes the user's error from an error of the client.

        Args:
            subject: what was asked for, in words.
            topic: the topic or topics of the request.
            error: the client's error.
            rights: what this client needs, if it isn't Read on the topic.
        """
        code = error.code()
        if code in UNKNOWN:
            return SpecError(
                f"There is no such topic or partition on {self._bootstrap}",
                "plan",
                "Check source.topic and bootstrap_servers, or create the topic.",
                topic,
            )
        if code in FORBIDDEN:
            of_request = Right("Read", "topic", topic) if topic else Right("Describe", "cluster")
            return lacking_error(rights or [of_request], self._bootstrap, "plan", topic)
        if code == KafkaError.TOPIC_EXCEPTION:
            return SpecError(
                "Kafka does not accept this topic's name", "plan", "Fix source.topic.", topic
            )
        if code in LOGIN or self._login_error is not None:
            CLIENTS.drop(self._client)
            text = self._login_error or self.scrub(error.str())
            if lacks_token(text):
                text += self._client.token_note
                return SpecError(f"The login has no token: {text}", "plan", LOGIN_ADVICE, topic)
            return SpecError(
                f"The cluster refused the login: {text}",
                "plan",
                login_advice(text, f"Check the sasl.* and ssl.* properties {WHERE_TO_SET}."),
                topic,
            )
        rejected = self._certificate_error
        if rejected is not None:
            CLIENTS.drop(self._client)
            return SpecError(
                f"The TLS certificate is not accepted: {rejected[1]}",
                "plan",
                "See that ssl.ca.location (or ssl.ca.pem) under client names the CA of the brokers'"
                " certificates, that these are for the host names that clients use and have not"
                " expired, and that the brokers accept the client's certificate, if they ask for"
                " one.",
                topic,
            )
        return self.unreachable(subject, topic, self.client_error or self.scrub(error.str()))

    def unreachable(self, subject: str, topic: str | None, reason: str) -> UnreachableError:
        """Makes the error for a request without an answer, with the reason if it is known."""
        CLIENTS.drop(self._client)
        text = f"{self._bootstrap} did not tell {subject} within {self.patience:.0f} s: {reason}"
        text += self._client.token_note
        return UnreachableError(
            text,
            "plan",
            LOGIN_ADVICE
            if lacks_token(reason)
            else "Check that a Kafka broker listens there, can be reached, and speaks the client's"
            " security.protocol (PLAINTEXT if none is set); then try again. A broker that asks for"
            " TLS or a login ends other connections: write both under client of a cluster in a"
            " windrow.yaml (windrow help logins).",
            topic,
        )

    def scrub(self, text: str) -> str:
        """Removes the secrets that a text of librdkafka might quote."""
        return self._client.scrub(text)

    @property
    def client_error(self) -> str | None:
        """The client's last error since the request was sent: the reason of a timeout.

        "All brokers are down" is used only if there is no other error.
        """
        errors = [error for _, error in self._client.errors_since(self._began)]
        down = KafkaError._ALL_BROKERS_DOWN
        reasons = [error for error in errors if error.code() != down]
        return self.scrub((reasons or errors)[-1].str()) if errors else None

    @property
    def _login_error(self) -> str | None:
        """The reason why the login was refused; None if it wasn't refused."""
        refused = [
            error for _, error in self._client.errors_since(self._began) if is_login_refused(error)
        ]
        return self.scrub(refused[-1].str()) if refused else None

    @property
    def _certificate_error(self) -> tuple[float, str] | None:
        """The first refusal of a certificate since the request was sent: its time and its text."""
        errors = self._client.errors_since(self._began)
        return next(
            (
                (moment, self.scrub(error.str()))
                for moment, error in errors
                if untrusted(error.str())
            ),
            None,
        )

    @property
    def _client_refused(self) -> bool:
        """True if another try won't help.

        Either the login was refused, or a certificate was not accepted and
        OTHER_BROKERS_SECONDS have passed since.
        """
        rejected = self._certificate_error
        return self._login_error is not None or (
            rejected is not None and time.monotonic() - rejected[0] > OTHER_BROKERS_SECONDS
        )
