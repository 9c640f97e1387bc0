"""How a question is put to the cluster: bounded tries, and what each failure means to a user.

An answer that failed is never an answer: each result is taken out of its own future,
whose error is either worth another try (the leader moves, the network broke) or named
at once (no such topic, no right to see it).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from windrow.ingest.errors import SpecError, UnreachableError
from windrow.ingest.kafka.clients import CLIENTS, Client
from windrow.ingest.kafka.codes import AGAIN, FORBIDDEN, LOGIN, UNKNOWN, UNSEEN, untrusted
from windrow.ingest.kafka.properties import PLACE
from windrow.ingest.kafka.retry import (
    AGAIN_SECONDS,
    HEAR_SECONDS,
    NEWS_SECONDS,
    OTHERS_SECONDS,
    REQUEST_SECONDS,
    repeated,
)
from windrow.ingest.waiting import waiting_for

T = TypeVar("T")
K = TypeVar("K")


class Questions:
    """A cluster's client, and the patience with it.

    Used by one thread; the client is everybody's.
    """

    def __init__(self, bootstrap: str, client: Client, patience: float) -> None:
        """Asks nothing yet.

        Args:
            bootstrap: the cluster's address, for errors.
            client: what asks; one that fails for good is not given to others any more.
            patience: how long one question is asked again before giving up, in seconds.
        """
        self.patience = patience
        self.admin = client.admin
        self._client = client
        self._bootstrap = bootstrap
        self._news = False
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long one request may take."""
        return min(REQUEST_SECONDS, self.patience)

    def each(self, futures: Mapping[K, Future[Any]]) -> dict[K, Any]:
        """Per key its answer, or the KafkaException that says why this one can't be
        had; any other failure is raised, and is of all.
        """
        found: dict[K, Any] = {}
        for key, future in futures.items():
            try:
                found[key] = self.result(future)
            except KafkaException as why:
                if self.again(why.args[0]) or why.args[0].code() not in UNSEEN:
                    raise
                found[key] = why
        return found

    def result(self, future: Future[T]) -> T:
        """The future's value.

        While it is waited for, the client's errors are heard: a refused login is not waited out.

        librdkafka times the request out itself; the deadline here is for a future that
        is never answered.
        """
        deadline = time.monotonic() + self.seconds + 5
        while True:
            wait([future], HEAR_SECONDS)
            self.admin.poll(0)  # serves errors and logs, which else would pile up
            if future.done() or self._turned_away or time.monotonic() > deadline:
                break
        if not future.done() and self._turned_away:
            raise KafkaException(
                KafkaError(
                    KafkaError._SSL  # noqa: SLF001
                    if self._login is None
                    else KafkaError.SASL_AUTHENTICATION_FAILED
                )
            )  # public
        return future.result(0)

    def again(self, error: KafkaError) -> bool:
        """Whether it is worth another try."""
        return not self._turned_away and (
            error.code() in AGAIN or (error.code() in UNKNOWN and self._news)
        )

    def ask(self, what: str, topic: str | None, question: Callable[[], T]) -> T:
        """The answer, after bounded tries.

        Raises:
            SpecError: it can't be had, and asking again won't help.
            UnreachableError: no answer for all the patience.
        """

        def again(why: Exception) -> bool:
            return (
                self.again(why.args[0])
                if isinstance(why, KafkaException)
                else isinstance(why, TimeoutError)
            )

        began = self._began = time.monotonic()
        try:
            with waiting_for(f"{self._bootstrap} to tell {what}"):
                return repeated(lambda: self._with_news(question, began), again, self.patience)
        except TimeoutError:
            raise self.unreachable(what, topic, "no answer") from None
        except KafkaException as why:
            raise self.named(what, topic, why.args[0]) from None

    def _with_news(self, question: Callable[[], T], began: float) -> T:
        """The answer.

        For a moment "no such topic" may only mean that the news is on its way: no
        reason to say that nobody answers.
        """
        while True:
            self._news = time.monotonic() - began < NEWS_SECONDS
            try:
                return question()
            except KafkaException as why:
                if not self._news or why.args[0].code() not in UNKNOWN:
                    raise
            time.sleep(AGAIN_SECONDS)

    def named(
        self, what: str, topic: str | None, error: KafkaError
    ) -> SpecError | UnreachableError:
        """What an error of the client means to a user."""
        code = error.code()
        if code in UNKNOWN:
            do = "Check source.topic and bootstrap_servers, or create the topic."
            return SpecError(
                f"There is no such topic or partition on {self._bootstrap}", "plan", do, topic
            )
        if code in FORBIDDEN:
            group = code == KafkaError.GROUP_AUTHORIZATION_FAILED
            do = (
                "Grant Read on the group to it."
                if group
                else "Grant Describe, DescribeConfigs and Read on the topic to it."
            )
            return SpecError(
                f"The cluster does not let this client ask for {what}", "plan", do, topic
            )
        if code == KafkaError.TOPIC_EXCEPTION:
            return SpecError(
                "Kafka does not take this for a topic's name", "plan", "Fix source.topic.", topic
            )
        if code in LOGIN or self._login is not None:
            CLIENTS.leave(self._client)
            text = self._login or self.scrub(error.str())
            do = f"Check the sasl.* and ssl.* properties {PLACE}."
            return SpecError(f"The cluster refused the login: {text}", "plan", do, topic)
        rejected = self._untrusted
        if rejected is not None:
            CLIENTS.leave(self._client)
            do = (
                "See that ssl.ca.location (or ssl.ca.pem) under client names the CA of the brokers'"
                " certificates, these are for the host names that clients use and have not expired,"
                " and that the brokers accept the client's own, if they want one."
            )
            return SpecError(
                f"The TLS certificate is not accepted: {rejected[1]}", "plan", do, topic
            )
        return self.unreachable(what, topic, self.heard or self.scrub(error.str()))

    def unreachable(self, what: str, topic: str | None, why: str) -> UnreachableError:
        """No answer, and the reason as far as it is known."""
        CLIENTS.leave(self._client)
        text = f"{self._bootstrap} did not tell {what} within {self.patience:.0f} s: {why}"
        do = (
            "Check that the broker runs, can be reached, and speaks the client's security.protocol"
            " (else PLAINTEXT); then try again."
        )
        return UnreachableError(text, "plan", do, topic)

    def scrub(self, text: str) -> str:
        """A text of librdkafka without the secrets that it might quote."""
        return self._client.scrub(text)

    @property
    def heard(self) -> str | None:
        """The client's own words since the question was put: the reason behind a timeout.

        "All brokers are down" only counts them.
        """
        said = [error for _, error in self._client.said_since(self._began)]
        reasons = [
            error
            for error in said
            if error.code() != KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
        ]  # public
        return self.scrub((reasons or said)[-1].str()) if said else None

    @property
    def _login(self) -> str | None:
        """Why the login was refused, which no further try would fix."""
        refused = [
            error for _, error in self._client.said_since(self._began) if error.code() in LOGIN
        ]
        return self.scrub(refused[-1].str()) if refused else None

    @property
    def _untrusted(self) -> tuple[float, str] | None:
        """When a certificate was not accepted for the first time since the question was
        put, and why.
        """
        said = self._client.said_since(self._began)
        return next(
            ((at, self.scrub(error.str())) for at, error in said if untrusted(error.str())), None
        )

    @property
    def _turned_away(self) -> bool:
        """Whether no further try would help: the login was refused, or a certificate
        was not accepted and no other broker answers.
        """
        rejected = self._untrusted
        return self._login is not None or (
            rejected is not None and time.monotonic() - rejected[0] > OTHERS_SECONDS
        )
