"""A real broker whose ports ask for TLS and a login, a client's certificate, or a token.

The first port listens in clear. A topic that has no ACL is open to all.
"""

from __future__ import annotations

from pathlib import Path

from tests.kafka.certificates import CertificateIssuer
from tests.kafka.listener import TLS
from tests.kafka.tokens import AUDIENCE, TokenIssuer
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, free_port

PASSWORD = "C4nary-correct-horse"
SESSION_MS = 3_000
"""Most milliseconds until a client that logged in by a token has to show a valid one again."""


class SecureBroker(EmbeddedBroker):
    """A broker that listens on three more ports.

    Attributes:
        secure: address that asks for TLS, and SCRAM or a password.
        mutual: address that asks for TLS and a client's certificate, which must be the one
            of `tls/broker.pem`, or one of `certificates`.
        certificates: the issuer of clients' certificates.
        bearer: address that asks for TLS and a token of `tokens`.
        tokens: the issuer of tokens.
    """

    secure: str
    mutual: str
    bearer: str
    certificates: CertificateIssuer
    tokens: TokenIssuer

    def _configure(self) -> None:
        super()._configure()
        port = int(self.bootstrap.rpartition(":")[2])
        secure = free_port(port)
        self.secure = f"127.0.0.1:{secure}"
        mutual = free_port(port, secure)
        self.mutual = f"127.0.0.1:{mutual}"
        self.bearer = f"127.0.0.1:{free_port(port, secure, mutual)}"
        self.tokens = TokenIssuer(self._folder)
        self.certificates = CertificateIssuer(self._folder)
        trusted = self._folder / "trusted.pem"
        trusted.write_text(
            (TLS / "broker.pem").read_text() + self.certificates.authority_file.read_text()
        )
        pair = self._folder / "pair.pem"
        pair.write_text((TLS / "broker.key.pem").read_text() + (TLS / "broker.pem").read_text())
        config = self._folder / "server.properties"
        text = config.read_text()
        listeners = f"SECURE://{self.secure},MUTUAL://{self.mutual},BEARER://{self.bearer}"
        for name, more in {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "SECURE:SASL_SSL,MUTUAL:SSL,BEARER:SASL_SSL",
        }.items():
            text = text.replace(f"\n{name}=", f"\n{name}={more},")
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        plain = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' user_reader="{PASSWORD}";'
        )
        config.write_text(
            f"{text}\nssl.keystore.type=PEM\nssl.keystore.location={pair}\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={trusted}\n"
            "listener.name.mutual.ssl.client.auth=required\nsasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN\n"
            f"listener.name.secure.scram-sha-512.sasl.jaas.config={login}\nlistener.name.secure.plain.sasl.jaas.config={plain}\n"
            f"{self._bearer_settings()}"
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "allow.everyone.if.no.acl.found=true\nsuper.users=User:ANONYMOUS\n"
        )

    def _bearer_settings(self) -> str:
        """Returns the settings of the listener for tokens, by the names that it has in Kafka."""
        classes = "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
        settings = {
            "sasl.jaas.config": f"{classes}LoginModule required;",
            "sasl.server.callback.handler.class": f"{classes}ValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": self.tokens.key_file.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.clock.skew.seconds": "0",
            "connections.max.reauth.ms": str(SESSION_MS),
        }
        lines = [f"oauthbearer.{name}={value}" for name, value in settings.items()]
        return "".join(
            f"listener.name.bearer.{line}\n"
            for line in ("sasl.enabled.mechanisms=OAUTHBEARER", *lines)
        )

    def _java(self, arguments: list[str]) -> list[str]:
        user = (
            ["--add-scram", f"SCRAM-SHA-512=[name=reader,password={PASSWORD}]"]
            if "format" in arguments
            else []
        )
        java, *others = super()._java([*arguments, *user])
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        key_file = self.tokens.key_file
        return [java, f"{allowed}.urls={key_file.as_uri()}", f"{allowed}.files={key_file}", *others]


def client(password: object = PASSWORD, ca: Path = TLS / "broker.pem") -> dict[str, object]:
    """Returns the client properties for the login."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "reader",
        "sasl.password": password,
        "ssl.ca.location": str(ca),
    }


def certificate(form: str) -> dict[str, object]:
    """Returns the client properties with a client's certificate, in one of three forms."""
    properties_by_form: dict[str, dict[str, object]] = {
        "files": {
            "ssl.certificate.location": str(TLS / "broker.pem"),
            "ssl.key.location": str(TLS / "broker.key.pem"),
        },
        "texts": {
            "ssl.certificate.pem": (TLS / "broker.pem").read_text(),
            "ssl.key.pem": (TLS / "broker.key.pem").read_text(),
        },
        "PKCS#12": {
            "ssl.keystore.location": str(TLS / "client.p12"),
            "ssl.keystore.password": PASSWORD,
        },
    }
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(TLS / "broker.pem"),
        **properties_by_form[form],
    }
