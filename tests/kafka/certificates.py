"""Certificates of clients, issued while a test runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class CertificateIssuer:
    """An authority that issues certificates of clients.

    Args:
        folder: where the file `clients.pem` with the authority's own certificate is written.
    """

    def __init__(self, folder: Path) -> None:
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _name("test clients")
        self.authority_file = folder / "clients.pem"
        self.authority_file.write_bytes(self._certificate(self._name, self._key, 1, ca=True))

    def issue(self, folder: Path, days: int, name: str = "reader") -> dict[str, object]:
        """Writes a certificate and its key; returns the client's properties for them.

        Args:
            folder: where the files are written; those of an earlier one are replaced.
            days: how long the certificate is valid; -1: until yesterday.
            name: the client's name.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate, key_file = folder / "client.pem", folder / "client.key.pem"
        certificate.write_bytes(self._certificate(_name(name), key, days))
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return {
            "security.protocol": "SSL",
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(key_file),
        }

    def _certificate(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, *, ca: bool = False
    ) -> bytes:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=9))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
            .public_bytes(Encoding.PEM)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
