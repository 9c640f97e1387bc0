"""A search for secrets, in each spelling in which a program may write them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

Channels = Mapping[str, bytes]
"""What was kept of a run, by the name of its channel."""


def spellings_of(text: str) -> dict[str, bytes]:
    """Returns the encodings of a text by their names, each without what surrounds it."""
    plain = text.encode()
    as_json = json.dumps(text)[1:-1]
    spellings = {
        "plain": plain,
        "UTF-16-LE": text.encode("utf-16-le"),
        "UTF-16-BE": text.encode("utf-16-be"),
        "hex": plain.hex().encode(),
        "upper hex": plain.hex().upper().encode(),
        "percent-encoded": quote(text, safe="").encode(),
        "percent-encoded, lower": quote(text, safe="").lower().encode(),
        "percent-encoded but /": quote(text).encode(),
        "of a form": quote_plus(text).encode(),
        "JSON": as_json.encode(),
        "JSON in JSON": json.dumps(as_json)[1:-1].encode(),
        "repr": repr(text)[1:-1].encode(),
        "HTML": text.replace('"', "&quot;").replace("'", "&#x27;").encode(),
    }
    for source, content in (("", plain), (" of percent-encoded", quote(text, safe="").encode())):
        for shift in range(3):
            coded = base64.b64encode(b" " * shift + content)
            whole = coded[-(-shift * 8 // 6) : (shift + len(content)) * 8 // 6]
            spellings[f"base64+{shift}{source}"] = whole
            spellings[f"URL's base64+{shift}{source}"] = whole.translate(
                bytes.maketrans(b"+/", b"-_")
            )
    return spellings


def parts_of(secret: str) -> list[str]:
    """Returns the parts of a secret that are searched for.

    They are a key's lines, without those that all keys have, and a JWT's claims and signature.
    """
    if "\n" in secret:
        return [line for line in secret.splitlines() if len(line) > 15 and "-----" not in line]
    return secret.split(".")[1:] if secret.startswith("eyJ") else [secret]


def traces(channels: Channels, secrets: Iterable[str]) -> list[tuple[str, str, str]]:
    """Returns where secrets are found, with the spelling.

    Returns:
        Channel, secret and the spelling's name.
    """
    return [
        (channel, part, name)
        for secret in secrets
        for part in parts_of(secret)
        for name, spelling in spellings_of(part).items()
        for channel, content in channels.items()
        if spelling in content
    ]
