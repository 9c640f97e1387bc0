"""Client properties: those that windrow forces, its defaults, and the user's.

The user may set properties of the allow-list.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from windrow.ingest.errors import SpecError
from windrow.ingest.kafka.allowed_properties import (
    ABSOLUTE,
    ALLOWED,
    DEFAULTS,
    FORCED,
    OAUTH,
    REFUSED,
    REFUSED_PREFIXES,
    WHERE_TO_SET,
    Value,
)
from windrow.ingest.kafka.oauth import login_properties
from windrow.ingest.model.source import Isolation
from windrow.ingest.settings.logins import Login, parse_login, to_mapping
from windrow.ingest.settings.secrets import InFile, Secret, masked, read

Recipe = Mapping[str, Value | Secret | Login]
"""Properties with references for secrets, and with the login for tokens."""

_SECRETS = {
    *(name for name, client_property in ALLOWED.items() if client_property.secret),
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
}

LOG = logging.getLogger("windrow.librdkafka")
"""Logger of all clients of librdkafka.

Its lines may quote secrets, and each lost connection writes several lines. So the logger has
no output until the user adds a handler to it.
"""
LOG.addHandler(logging.NullHandler())
LOG.propagate = False


def problems(user: Mapping[str, object]) -> list[str]:
    """Returns all problems of a user's properties, each as a sentence without a value.

    A sentence begins with the name of the property.
    """
    problem_texts = [
        text for name, value in user.items() if (text := _problem(name, value)) is not None
    ]
    return problem_texts + _conflicts(user)


def consumer_properties(
    bootstrap: str,
    user: Mapping[str, object],
    *,
    isolation: Isolation = "read_committed",
) -> dict[str, Value]:
    """Makes the properties of a consumer in this process.

    Raises:
        SpecError: there are `problems`, or a secret isn't at the place of its reference.
    """
    return reveal_secrets(consumer_recipe(bootstrap, user, isolation=isolation))


def consumer_recipe(
    bootstrap: str,
    user: Mapping[str, object],
    *,
    isolation: Isolation = "read_committed",
) -> dict[str, Value | Secret | Login]:
    """Makes the properties of a consumer in another process.

    That process reads the secrets (`reveal_secrets`).

    Raises:
        SpecError: there are `problems`.
    """
    forced = {name: value for name, (value, _reason) in FORCED.items()}
    own_properties = {"bootstrap.servers": bootstrap, "isolation.level": isolation}
    return dict(DEFAULTS) | _parsed_properties(user) | forced | own_properties


def admin_properties(bootstrap: str, user: Mapping[str, object]) -> dict[str, Value]:
    """Makes the properties of an AdminClient in this process.

    They leave out properties that only consumers have.

    Raises:
        SpecError: there are `problems`, or a secret isn't at the place of its reference.
    """
    chosen = {
        name: value
        for name, value in (dict(DEFAULTS) | _parsed_properties(user)).items()
        if name == OAUTH or not ALLOWED[name].consumer
    }
    return {"bootstrap.servers": bootstrap} | reveal_secrets(chosen)


def reveal_secrets(recipe: Recipe) -> dict[str, Value]:
    """Replaces references by secrets, which are read in this process, and a login by its source.

    Raises:
        SpecError: a secret isn't at the place of its reference.
    """
    properties = dict[str, Value]()
    for name, value in recipe.items():
        if isinstance(value, Login):
            properties |= login_properties(value)
        else:
            properties[name] = read(value, name) if isinstance(value, Secret) else value
    return properties


def scrub(text: str, properties: Mapping[str, Any]) -> str:
    """Removes the secrets that a text of librdkafka might quote, and makes it one line.

    A broker or a provider of tokens may have written it, as a page of HTML or with characters
    that move a terminal's cursor.
    """
    shown = masked(text, [str(value) for name, value in properties.items() if name in _SECRETS])
    return " ".join("".join(c if c.isprintable() else " " for c in shown).split())


def _parsed_properties(user: Mapping[str, object]) -> dict[str, Value | Secret | Login]:
    mistakes = problems(user)
    if mistakes:
        raise SpecError(
            "The client properties can't be used: " + "; ".join(mistakes),
            "spec",
            f"Fix them {WHERE_TO_SET}.",
        )
    return {
        name: parse_login(value)
        if name == OAUTH
        else value
        if isinstance(value, Secret)
        else ALLOWED[name].parse(value)
        for name, value in user.items()
    }


def _problem(name: str, value: object) -> str | None:
    if name in FORCED:
        fixed, reason = FORCED[name]
        return (
            f"{name} is always {str(fixed).lower() if isinstance(fixed, bool) else fixed}: {reason}"
        )
    if name == OAUTH:
        try:
            login = parse_login(value)
        except ValueError as wrong:
            return f"{name} {wrong}"
        relative = next(_relative_files(to_mapping(login)), None)
        return relative and f"{name} {ABSOLUTE}: {relative}"
    if name in ALLOWED and isinstance(value, Secret):
        return _reference_problem(name, value)
    if name in ALLOWED:
        try:
            ALLOWED[name].parse(value)
        except ValueError as wrong:
            return f"{name} {wrong}"
        return None
    refused = REFUSED.get(name) or next(
        (reason for prefix, reason in REFUSED_PREFIXES.items() if name.startswith(prefix)), None
    )
    if refused:
        return f"{name} is refused: {refused}"
    near = difflib.get_close_matches(name, [*ALLOWED, OAUTH], n=1)
    return f"{name} is not among the properties that may be set" + (
        f" (is {near[0]} meant?)" if near else ""
    )


def _relative_files(login: Mapping[str, Any]) -> Iterator[str]:
    """Yields the settings of a login that name a file by a relative path."""
    for name, value in login.items():
        if isinstance(value, Mapping) and name != "extensions":
            yield from (f"{name}.{inner}" for inner in _relative_files(value))
        elif name in {"ca", "file", "token_file"} and not PurePosixPath(str(value)).is_absolute():
            yield name


def _reference_problem(name: str, secret: Secret) -> str | None:
    """Returns why a property can't have this reference as its value; None if it can."""
    if not ALLOWED[name].secret:
        return f"{name} is no secret: write its value, or a template"
    if isinstance(secret, InFile) and not PurePosixPath(secret.path).is_absolute():
        return f"{name} {ABSOLUTE}"
    return None


def _conflicts(user: Mapping[str, object]) -> list[str]:
    """Returns the problems of properties that are valid alone, but not together.

    Such properties would be ignored, could not connect, or would send a password in clear
    text.
    """
    protocol = str(user.get("security.protocol", "PLAINTEXT")).upper()
    mechanism = str(user.get("sasl.mechanism", user.get("sasl.mechanisms", ""))).upper()
    sasl, ssl = protocol.startswith("SASL_"), protocol.endswith("SSL")
    conflicts = []
    for prefix, used, needed in (
        ("sasl.", sasl, "SASL_SSL or SASL_PLAINTEXT"),
        ("ssl.", ssl, "SSL or SASL_SSL"),
    ):
        names = sorted(name for name in user if name.startswith(prefix) and name in ALLOWED)
        if names and not used:
            conflicts.append(
                f"{', '.join(names)} would be ignored: security.protocol must be {needed}"
            )
    by_token, login = mechanism == "OAUTHBEARER", {"sasl.username", "sasl.password"} & user.keys()
    needed_names = (OAUTH,) if by_token else ("sasl.username", "sasl.password")
    missing = [name for name in needed_names if name not in user]
    if sasl and not mechanism:
        conflicts.append(
            "security.protocol asks for SASL and needs sasl.mechanism too: OAUTHBEARER with"
            f" {OAUTH} for tokens, or PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 with sasl.username and"
            " sasl.password (windrow help logins)"
        )
    # another mechanism is an error by itself, and may need neither
    if sasl and missing and mechanism in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}:
        conflicts.append(f"security.protocol asks for SASL and needs {', '.join(missing)} too")
    if sasl and missing and by_token:
        conflicts.append(
            f"sasl.mechanism OAUTHBEARER needs {OAUTH} too, which says where tokens are from"
        )
    if by_token and login:
        conflicts.append(f"{', '.join(sorted(login))} would be ignored: tokens log in")
    if OAUTH in user and not by_token:
        conflicts.append(f"{OAUTH} would be ignored: sasl.mechanism must be OAUTHBEARER")
    if protocol == "SASL_PLAINTEXT" and mechanism in {"PLAIN", "OAUTHBEARER"}:
        secret, remedy = ("token", "") if by_token else ("password", ", or SCRAM")
        conflicts.append(
            f"sasl.mechanism {mechanism} over SASL_PLAINTEXT sends the {secret} in clear text: use"
            f" SASL_SSL{remedy}"
        )
    return conflicts
