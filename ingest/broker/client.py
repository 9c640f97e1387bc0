"""Client properties in three tiers: what windrow forces, what it defaults to, and what the user chose out of the allow-list."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from ingest.broker.properties import ALLOWED, DEFAULTS, FORCED, REFUSED, REFUSED_PREFIXES, Value
from ingest.errors import SpecError


def problems(user: Mapping[str, object]) -> list[str]:
    """All that is wrong with the properties a user wrote, each in one sentence that names the property and no value."""
    return [text for name, value in user.items() if (text := _problem(name, value)) is not None] + _conflicts(user)


def consumer_properties(bootstrap: str, user: Mapping[str, object]) -> dict[str, Value]:
    """What a consumer is made with.

    Raises:
        SpecError: with all `problems` at once.
    """
    forced = {name: value for name, (value, _why) in FORCED.items()}
    return {"bootstrap.servers": bootstrap} | dict(DEFAULTS) | _parsed(user) | forced


def admin_properties(bootstrap: str, user: Mapping[str, object]) -> dict[str, Value]:
    """What an AdminClient is made with: the same without what only consumers know.

    Raises:
        SpecError: with all `problems` at once.
    """
    chosen = dict(DEFAULTS) | _parsed(user)
    return {"bootstrap.servers": bootstrap} | {name: value for name, value in chosen.items() if not ALLOWED[name].consumer}


def scrubbed(text: str, properties: Mapping[str, Value]) -> str:
    """A text of librdkafka without the secrets that it might quote."""
    for name, value in properties.items():
        if name in ALLOWED and ALLOWED[name].secret:
            text = text.replace(str(value), "***")
    return text


def _parsed(user: Mapping[str, object]) -> dict[str, Value]:
    found = problems(user)
    if found:
        raise SpecError("The client properties can't be used: " + "; ".join(found), "spec", "Mend them under source.client.")
    return {name: ALLOWED[name].parse(value) for name, value in user.items()}


def _problem(name: str, value: object) -> str | None:
    if name in FORCED:
        needed, why = FORCED[name]
        return f"{name} is always {str(needed).lower() if isinstance(needed, bool) else needed}: {why}"
    if name in ALLOWED:
        try:
            ALLOWED[name].parse(value)
        except ValueError as wrong:
            return f"{name} {wrong}"
        return None
    refused = REFUSED.get(name) or next((why for prefix, why in REFUSED_PREFIXES.items() if name.startswith(prefix)), None)
    if refused:
        return f"{name} is refused: {refused}"
    near = difflib.get_close_matches(name, ALLOWED, n=1)
    return f"{name} is not among the properties that may be set" + (f" (is {near[0]} meant?)" if near else "")


def _conflicts(user: Mapping[str, object]) -> list[str]:
    """Properties that are right each by itself, and together would be ignored, fail to connect, or send a password in clear."""
    protocol = str(user.get("security.protocol", "PLAINTEXT")).upper()
    mechanism = str(user.get("sasl.mechanism", "")).upper()
    sasl, ssl = protocol.startswith("SASL_"), protocol.endswith("SSL")
    found = []
    for prefix, used, needed in (("sasl.", sasl, "SASL_SSL or SASL_PLAINTEXT"), ("ssl.", ssl, "SSL or SASL_SSL")):
        names = sorted(name for name in user if name.startswith(prefix) and name in ALLOWED)
        if names and not used:
            found.append(f"{', '.join(names)} would be ignored: security.protocol must be {needed}")
    missing = [name for name in ("sasl.mechanism", "sasl.username", "sasl.password") if name not in user]
    if sasl and missing:
        found.append(f"security.protocol asks for SASL and needs {', '.join(missing)} too")
    if protocol == "SASL_PLAINTEXT" and mechanism == "PLAIN":
        found.append("sasl.mechanism PLAIN over SASL_PLAINTEXT sends the password in clear: use SASL_SSL, or SCRAM")
    return found
