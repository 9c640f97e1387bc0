"""A real broker with three ports: plain, TLS with a login, and TLS with a client's certificate."""

from __future__ import annotations

from pathlib import Path

from tests.kafka.listener import TLS
from windrow.ingest.kafka.embedded.server import EmbeddedBroker, free_port

PASSWORD = "C4nary-correct-horse"


class SecureBroker(EmbeddedBroker):
    """A broker with two further ports.

    Attributes:
        secure: the address for TLS with SCRAM or a plain password.
        mutual: the address for TLS with a client's certificate, which must be that of
            `tls/broker.pem`.
    """

    secure: str
    mutual: str

    def _configure(self) -> None:
        super()._configure()
        port = int(self.bootstrap.rpartition(":")[2])
        secure = free_port(port)
        self.secure = f"127.0.0.1:{secure}"
        self.mutual = f"127.0.0.1:{free_port(port, secure)}"
        pair = self._folder / "pair.pem"
        pair.write_text((TLS / "broker.key.pem").read_text() + (TLS / "broker.pem").read_text())
        config = self._folder / "server.properties"
        text = config.read_text()
        for name, more in {
            "listeners": f"SECURE://{self.secure},MUTUAL://{self.mutual}",
            "advertised.listeners": f"SECURE://{self.secure},MUTUAL://{self.mutual}",
            "listener.security.protocol.map": "SECURE:SASL_SSL,MUTUAL:SSL",
        }.items():
            text = text.replace(f"\n{name}=", f"\n{name}={more},")
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        plain = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' user_reader="{PASSWORD}";'
        )
        config.write_text(
            f"{text}\nssl.keystore.type=PEM\nssl.keystore.location={pair}\n"
            f"ssl.truststore.type=PEM\nssl.truststore.location={TLS / 'broker.pem'}\n"
            "listener.name.mutual.ssl.client.auth=required\nsasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN\n"
            f"listener.name.secure.scram-sha-512.sasl.jaas.config={login}\nlistener.name.secure.plain.sasl.jaas.config={plain}\n"
        )

    def _java(self, arguments: list[str]) -> list[str]:
        user = (
            ["--add-scram", f"SCRAM-SHA-512=[name=reader,password={PASSWORD}]"]
            if "format" in arguments
            else []
        )
        return super()._java([*arguments, *user])


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
