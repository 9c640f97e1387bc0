"""A small OpenID Connect provider on loopback, by HTTPS: Authlib's server, with one client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7523 import JWTBearerGrant
from flask import Flask, redirect
from joserfc.jwk import RSAKey
from werkzeug.serving import make_server

from tests.kafka.listener import TLS
from tests.kafka.tokens import TokenIssuer

CLIENT, SECRET = "windrow-tests", "C4nary-client-secret"


class _Client(ClientMixin):  # type: ignore[misc]  # untyped
    """The provider's one client."""

    client_id = CLIENT

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_grant_type(self, grant_type: str) -> bool:
        return True

    def get_allowed_scope(self, scope: str) -> str:
        return scope


class Provider:
    """A running provider.

    Args:
        tokens: issues the access tokens.
        seconds: lifetime of an access token.

    Attributes:
        token_url: the token endpoint.
        redirecting_url: an endpoint that answers with a redirection to `token_url`.
        scopes: scope of each token that was given.
    """

    def __init__(self, tokens: TokenIssuer, seconds: float) -> None:
        self.assertion_key = RSAKey.generate_key(2048)
        self.scopes: list[str] = []
        app = Flask(__name__)
        server = AuthorizationServer(
            app,
            query_client=lambda name: _Client() if name == CLIENT else None,
            save_token=self._note,
        )
        server.register_token_generator(
            "default",
            lambda **_: {
                "token_type": "Bearer",
                "access_token": tokens.issue(seconds),
                "expires_in": seconds,
            },
        )
        provider = self

        class Assertions(JWTBearerGrant):  # type: ignore[misc]  # untyped
            def resolve_issuer_client(self, issuer: str) -> _Client:
                return _Client()

            def resolve_client_public_key(self, client: _Client) -> Any:
                return provider.assertion_key

            def get_audiences(self) -> list[str]:
                return [provider.token_url]

            def authenticate_user(self, subject: str) -> str:
                return subject

            def has_granted_permission(self, *_: Any) -> bool:
                return True

        server.register_grant(grants.ClientCredentialsGrant)
        server.register_grant(Assertions)
        app.post("/token")(server.create_token_response)
        app.post("/elsewhere")(lambda: redirect("/token", 307))
        self._http = make_server(
            "127.0.0.1", 0, app, ssl_context=(str(TLS / "broker.pem"), str(TLS / "broker.key.pem"))
        )
        self.token_url = f"https://127.0.0.1:{self._http.server_port}/token"
        self.redirecting_url = f"https://127.0.0.1:{self._http.server_port}/elsewhere"

    def _note(self, token: Any, request: Any) -> None:
        self.scopes.append(request.payload.scope or "")

    @contextmanager
    def running(self) -> Iterator[Provider]:
        """Answers requests until the block is left."""
        thread = threading.Thread(target=self._http.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            thread.join(60)
            self._http.server_close()
