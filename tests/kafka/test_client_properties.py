"""Client properties: forced, refused and allowed ones.

No property is ignored, and no value is quoted.
"""

from __future__ import annotations

from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.allowed_properties import ALLOWED, DEFAULTS, FORCED, REFUSED
from windrow.ingest.kafka.client_properties import (
    admin_properties,
    consumer_properties,
    problems,
    scrub,
)
from windrow.ingest.settings.secrets import InEnvironment, InFile

SERVERS = "127.0.0.1:1"
CANARY = "canary-7f3a"

SAMPLES: dict[str, object] = {
    "broker.address.family": "v4",
    "client.dns.lookup": "use_all_dns_ips",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "enable.metrics.push": "true",
    "log.connection.close": "true",
    "socket.keepalive.enable": "false",
    "socket.nagle.disable": "true",
    "fetch.max.bytes": "50000000",
}
"""Valid values of properties for which neither a text nor a number like 20000 is valid."""

DANGEROUS = [
    "plugin.library.paths",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.principal",
    "ssl.engine.location",
    "ssl.engine.id",
    "ssl.providers",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.assertion.file",
    "enable.sasl.oauthbearer.unsecure.jwt",
    "sasl.jaas.config",
    "enable.ssl.certificate.verification",
    "ssl.endpoint.identification.algorithm",
    "bootstrap.servers",
    "metadata.broker.list",
    "debug",
    "error_cb",
    "logger",
    "log_level",
    "opaque",
    "interceptors",
    "statistics.interval.ms",
    "default.topic.config",
    "auto.commit.enable",
    "group.instance.id",
]


def sample(name: str) -> object:
    return SAMPLES.get(
        name,
        (
            "20000"
            if name.rpartition(".")[2] in {"ms", "bytes", "messages", "kbytes", "ttl"}
            else "/text"
        ),
    )


@pytest.mark.parametrize("name", sorted(FORCED))
def test_a_forced_property_can_not_be_set(name: str) -> None:
    """A forced property is refused with its name and the reason, even with the forced value."""
    value, reason = FORCED[name]
    assert problems({name: value}) == [
        f"{name} is always {str(value).lower() if isinstance(value, bool) else value}: {reason}"
    ]
    with pytest.raises(SpecError, match=name):
        consumer_properties(SERVERS, {name: value})


def test_where_a_start_is_said() -> None:
    """A property that sets a consumer's start is refused with a reference to `source.start`."""
    for name in ("auto.offset.reset", "group.id"):
        assert "source.start" in problems({name: "earliest"})[0]


@pytest.mark.parametrize("name", sorted({*DANGEROUS, *REFUSED}))
def test_what_is_not_allowed_is_refused(name: str) -> None:
    """A property outside the allow-list is refused for consumers and admin clients.

    Its value is never quoted.
    """
    [problem] = problems({name: CANARY})
    assert name in problem
    assert CANARY not in problem
    for make in (consumer_properties, admin_properties):
        with pytest.raises(SpecError) as caught:
            make(SERVERS, {name: CANARY})
        assert CANARY not in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    """All wrong properties are reported at once: forced, refused, unknown and of a wrong type."""
    mistakes = problems(
        {
            "group.id": "g",
            "debug": "all",
            "fetch.mesage.max.bytes": 1,
            "socket.timeout.ms": CANARY,
            "client.rack": "ok",
        }
    )
    assert [text.split()[0] for text in mistakes] == [
        "group.id",
        "debug",
        "fetch.mesage.max.bytes",
        "socket.timeout.ms",
    ]
    assert "fetch.message.max.bytes" in mistakes[2]
    with pytest.raises(SpecError) as caught:
        consumer_properties(SERVERS, {"group.id": "g", "debug": "all", "socket.timeout.ms": CANARY})
    assert all(name in str(caught.value) for name in ("group.id", "debug", "socket.timeout.ms"))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("user", "names"),
    [
        ({"sasl.username": CANARY}, ["sasl.username", "security.protocol"]),
        (
            {"ssl.ca.location": f"/{CANARY}", "security.protocol": "plaintext"},
            ["ssl.ca.location", "security.protocol"],
        ),
        ({"security.protocol": "SASL_SSL"}, ["sasl.mechanism", "oauth", "sasl.password"]),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            ["sasl.mechanism OAUTHBEARER needs oauth too"],
        ),
        ({"max.poll.records": 5}, ["window.max_records", "source.tuning.batch_messages"]),
        ({"auto.commit.interval.ms": 5}, ["source.offsets_group"]),
        ({"ssl.truststore.location": CANARY}, ["ssl.ca.location"]),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "plain",
                "sasl.username": "u",
                "sasl.password": CANARY,
            },
            ["PLAIN", "SASL_PLAINTEXT"],
        ),
    ],
)
def test_properties_that_do_not_fit_together_are_refused(
    user: dict[str, object], names: list[str]
) -> None:
    """Properties that don't fit together are one problem with all their names.

    They would be ignored, couldn't log in, or would send a password in clear.
    """
    [problem] = problems(user)
    assert all(name in problem for name in names)
    assert CANARY not in problem


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_an_allowed_property_arrives(name: str) -> None:
    """Each allowed property reaches the clients in its own type.

    Properties of consumers aren't given to admin clients.
    """
    parsed = ALLOWED[name].parse(sample(name))
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    user = (
        {**login, name: sample(name)}
        if name.startswith(("sasl.", "ssl.", "security."))
        else {name: sample(name)}
    )
    assert consumer_properties(SERVERS, user)[name] == parsed
    assert (name in admin_properties(SERVERS, user)) is not ALLOWED[name].consumer


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_a_value_of_the_wrong_kind_is_refused_without_quoting_it(name: str) -> None:
    """A value of a wrong type is refused without being quoted. An empty text is always wrong."""
    for wrong_value in ("", [CANARY]):
        assert any(text.startswith(f"{name} must be") for text in problems({name: wrong_value}))
        assert CANARY not in str(problems({name: wrong_value}))


def test_librdkafka_knows_every_property() -> None:
    """librdkafka accepts all allowed, default and forced properties without a warning."""
    user = {
        name: sample(name)
        for name in ALLOWED
        if not name.startswith(("ssl.", "sasl.", "security."))
    }
    ck.Consumer(consumer_properties(SERVERS, user) | {"log_level": 0}).close()
    AdminClient(admin_properties(SERVERS, user) | {"log_level": 0})
    secure = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    ck.Consumer(consumer_properties(SERVERS, secure) | {"log_level": 0}).close()


def test_the_forced_ones_are_forced_and_the_defaults_can_be_changed() -> None:
    """Each consumer has the forced values, and a user's value replaces a default."""
    properties = consumer_properties(SERVERS, {"fetch.queue.backoff.ms": 7})
    assert {name: properties[name] for name in FORCED} == {
        name: value for name, (value, _) in FORCED.items()
    }
    assert properties["fetch.queue.backoff.ms"] == 7
    assert (
        consumer_properties(SERVERS, {})["fetch.queue.backoff.ms"]
        == DEFAULTS["fetch.queue.backoff.ms"]
        == 2
    )
    assert set(DEFAULTS) <= set(ALLOWED)
    assert not set(FORCED) & set(ALLOWED)


def test_isolation_is_set_in_one_place() -> None:
    """The isolation level comes from `source.isolation`, "read_committed" by default.

    The client property is refused with a reference to this option.
    """
    assert consumer_properties(SERVERS, {})["isolation.level"] == "read_committed"
    assert (
        consumer_properties(SERVERS, {}, isolation="read_uncommitted")["isolation.level"]
        == "read_uncommitted"
    )
    assert problems({"isolation.level": "read_committed"}) == [
        "isolation.level is refused: set source.isolation"
    ]


def test_secrets_are_scrubbed_from_texts() -> None:
    """A secret is removed from the client's texts, and other values stay."""
    assert (
        scrub(f"bad {CANARY} for bob", {"sasl.password": CANARY, "sasl.username": "bob"})
        == "bad *** for bob"
    )
    assert scrub("<html>\n \x1b[2Jno</html>\n", {}) == "<html> [2Jno</html>"


def test_where_to_fix_them() -> None:
    """The error names both places of properties, the spec and windrow.yaml.

    The place isn't known where the error is raised.
    """
    with pytest.raises(SpecError) as caught:
        consumer_properties("a:1", {"debug": "all"})
    assert "under client, in the spec's source or in windrow.yaml" in caught.value.advice


LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}


def test_a_secret_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client gets the current value of the variable or the file, without the line's end."""
    monkeypatch.setenv("KAFKA_PASSWORD", CANARY)
    (tmp_path / "password").write_text(f"{CANARY}\n")
    for secret in (InEnvironment("KAFKA_PASSWORD"), InFile(str(tmp_path / "password"))):
        for make in (consumer_properties, admin_properties):
            assert make(SERVERS, {**LOGIN, "sasl.password": secret})["sasl.password"] == CANARY


def test_what_a_reference_may_not_tell() -> None:
    """A property that is no secret can't be a reference.

    A file needs an absolute path, also that of a certificate.
    """
    assert problems({"client.id": InEnvironment("X")}) == [
        "client.id is no secret: write its value, or a template"
    ]
    [problem] = problems({**LOGIN, "sasl.password": InFile("password")})
    assert problem.startswith("sasl.password must name its file by an absolute path")
    [problem] = problems({"security.protocol": "SSL", "ssl.ca.location": "ca.pem"})
    assert problem.startswith("ssl.ca.location must name its file by an absolute path")


def test_a_secret_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing secret raises SpecError with the variable or file, and the property."""
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)
    for secret, missing_name in (
        (InEnvironment("KAFKA_PASSWORD"), "KAFKA_PASSWORD"),
        (InFile(str(tmp_path / "none")), "none"),
    ):
        with pytest.raises(SpecError, match=rf"{missing_name}, which sasl\.password refers to"):
            admin_properties(SERVERS, {**LOGIN, "sasl.password": secret})
