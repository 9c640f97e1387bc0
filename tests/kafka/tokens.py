"""Tokens that the test's broker believes: JWTs, signed with a key that it knows."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from tests.kafka.listener import TLS

AUDIENCE = "kafka"
_RENEWAL_SECONDS = 0.5


class TokenIssuer:
    """Issues tokens; the broker checks them by the public key in a file.

    Args:
        folder: where the file `jwks.json` is written.
    """

    def __init__(self, folder: Path) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "1", "alg": "RS256", "use": "sig"})
        self.key_file = folder / "jwks.json"
        self.key_file.write_text(json.dumps(KeySet([self._key]).as_dict(private=False)))

    def issue(self, seconds: float, subject: str = "reader", audience: str = AUDIENCE) -> str:
        """Issues a token that is valid for some seconds from now on."""
        now = int(time.time())
        claims = {
            "sub": subject,
            "aud": audience,
            "iss": "tests",
            "iat": now,
            "exp": now + seconds,
        }
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims, self._key)

    @contextmanager
    def renewing(self, file: Path, seconds: float) -> Iterator[None]:
        """Keeps a token in a file, as Kubernetes does, and replaces it long before its end."""
        stopped = threading.Event()

        def renew() -> None:
            while not stopped.is_set():
                draft = file.with_suffix(".draft")
                draft.write_text(self.issue(seconds))
                draft.replace(file)
                written.set()
                stopped.wait(_RENEWAL_SECONDS)

        written, thread = threading.Event(), threading.Thread(target=renew)
        thread.start()
        assert written.wait(30)
        try:
            yield
        finally:
            stopped.set()
            thread.join(60)


def bearer(**oauth: object) -> dict[str, object]:
    """Returns the user's properties with a login by token."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "ssl.ca.location": str(TLS / "broker.pem"),
        "oauth": oauth,
    }
