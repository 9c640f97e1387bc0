"""How a spec would read a topic's messages, and the columns that they would have: what
is written into a new pipeline's files.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa

from windrow.ingest.errors import SpecError
from windrow.ingest.formats.formats import ASKING
from windrow.ingest.infer.documents import document, offers_of
from windrow.ingest.infer.offer import MOST_TYPES, Guess, Offer, Refusal, usable_only
from windrow.ingest.settings.templates import has_template

Document = Mapping[str, Any]


class Setting(NamedTuple):
    """One of a section, with a word on it."""

    name: str
    value: Any
    comment: str = ""


class KeyAndValue(NamedTuple):
    """The parts of a message that say how it is to be read."""

    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Proposal:
    """What is proposed for a topic.

    `decode`: settings of that section besides the schema, those of its key among them;
    `hints`: lines of comment on it. `primary_key`: by which columns rows replace each
    other; none, if they don't. `change_data`: whether messages without a value are
    nobody's mistake. `told_by`: where the columns are from, for people.
    """

    offers: tuple[Offer, ...]
    told_by: str
    decode: tuple[Setting, ...] = ()
    hints: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    change_data: bool = False

    @property
    def format(self) -> str:
        """What the values are."""
        return next(str(setting.value) for setting in self.decode if setting.name == "format")

    @property
    def asks_registry(self) -> bool:
        """Whether a spec that reads so asks a schema registry."""
        keys = [setting.value["format"] for setting in self.decode if setting.name == "key"]
        return not ASKING.isdisjoint({self.format, *keys})


def of_documents(messages: Sequence[KeyAndValue], stated: Setting | None = None) -> Proposal:
    """Of JSON documents, and of keys that are some.

    `stated`: the format, where it isn't plain JSON.
    """
    pairs = [
        (message.key, found)
        for message in messages
        if message.value is not None and (found := document(message.value)) is not None
    ]
    documents = [found for _, found in pairs]
    keyed = with_key(offers_of(documents), [key for key, _ in pairs], documents)
    return replace(
        keyed,
        told_by=f"guessed from {counted(len(documents))}",
        decode=(*([stated] if stated else []), *keyed.decode),
    )


def counted(messages: int) -> str:
    """`1 message`, `2 messages`."""
    return "1 message" if messages == 1 else f"{messages:,} messages"


def of_one_column(name: str, messages: int) -> Proposal:
    """Of messages that are looked into no further: `string` or `raw`."""
    kind = pa.string() if name == "string" else pa.binary()
    offer = Offer("value", Guess(kind), nullable=False)
    return Proposal(
        (offer,),
        f"one column for the whole value of {counted(messages)}",
        (Setting("format", name),),
    )


# --------------------------------------------------------------------------------------------------


def with_key(
    offers: Sequence[Offer], keys: Sequence[bytes | None], documents: Sequence[Document]
) -> Proposal:
    """The value's fields, and those of the keys where all keys are objects and some of
    them says what the value doesn't.
    """
    found = [None if key is None else document(key) for key in keys]
    of_keys = [key for key in found if key]
    if not of_keys or len(of_keys) < len(keys):
        return Proposal(tuple(offers), "", hints=() if not any(keys) else (KEEP_KEY,))
    names = {name: None for key in of_keys for name in key}
    if all(
        name in value and value[name] == key[name]
        for key, value in zip(of_keys, documents, strict=True)
        for name in key
    ):
        return Proposal(tuple(offers), "", hints=(same_key(list(names)),))
    return beside_key(offers, offers_of(of_keys), "json")


KEEP_KEY = (
    "the keys are no columns: `metadata: {key: _key}` keeps their bytes, docs/formats.md says what"
    " else they may be"
)


def same_key(names: Sequence[str]) -> str:
    """That nothing is lost without the key."""
    return f"the keys say the same as the value's {', '.join(map(ascii, names))}"


def beside_key(
    offers: Sequence[Offer], of_key: Sequence[Offer], key_format: str, told: Sequence[Setting] = ()
) -> Proposal:
    """The fields of the key as columns beside those of the value; with a prefix where some have one name.

    `told`: what else the key's section says.
    """  # noqa: E501
    names = {offer.name.casefold() for offer in offers}
    prefixes = ("key" * (n > 0) + "_" * n for n in count())
    prefix = next(
        prefix
        for prefix in prefixes
        if names.isdisjoint((prefix + offer.name).casefold() for offer in of_key)
    )
    columns = [replace(offer, name=prefix + offer.name) for offer in of_key]
    usable = [offer.name for offer in columns if offer.usable]
    if not usable:
        return Proposal((*columns, *offers), "")
    key = {"format": key_format, "fields": usable, **({"fields_prefix": prefix} if prefix else {})}
    key |= {setting.name: setting.value for setting in told}
    settings = (
        Setting("key", key, "the columns that come from the key"),
        Setting("fields_include", "except_key"),
    )
    return Proposal((*columns, *offers), "", settings)


def with_columns(proposal: Proposal, refusal: Refusal) -> Proposal:
    """The same; a field that can't be a column has no type, and no setting of the key names it.

    `refusal`: as of `usable_only`.

    Raises:
        SpecError: the primary key has such a field.
    """
    stated = {setting.name: setting.value for setting in proposal.decode}
    of_key = stated["key"]["fields"] if "key" in stated else []
    named = {*of_key, *proposal.primary_key}
    sayable = [
        replace(o, guess=_TEMPLATE) if o.name in named and has_template(o.name) else o
        for o in proposal.offers
    ]
    offers = tuple(usable_only(sayable, refusal))
    left = {offer.name: offer.guess.note for offer in offers if not offer.usable}
    other = next((name for name in proposal.primary_key if name in left), None)
    if other is not None:
        what = f"The field {other!a} of the rows' primary key can't be a column: {left[other]}"
        raise SpecError(what, "spec", "Nothing was written. Write the spec by hand (windrow init).")
    fields = [name for name in of_key if name not in left]
    others = tuple(s for s in proposal.decode if s.name != "fields_include" or fields)
    decode = tuple(
        s if s.name != "key" else s._replace(value={**s.value, "fields": fields})
        for s in others
        if s.name != "key" or fields
    )
    return replace(proposal, offers=offers, decode=decode)


_TEMPLATE = Guess(None, "a spec would take its name for a template")


def refuse_useless(proposal: Proposal, topic: str) -> None:
    """That there is a column to begin with, and not more of them than a table is made of.

    Raises:
        SpecError: there is none, or there are too many.
    """
    if len(proposal.offers) > MOST_TYPES:
        what = (
            f"The messages of topic {topic} have {len(proposal.offers):,} different fields, which"
            " look like data and no columns"
        )
        raise SpecError(
            what,
            "spec",
            "Nothing was written. Keep the bytes with --format raw, or write the schema by hand"
            " (windrow init).",
        )
    if not any(offer.usable for offer in proposal.offers):
        why = "; ".join(f"{offer.name!a}: {offer.guess.note}" for offer in proposal.offers[:5])
        what = f"No field of topic {topic} can be a column" + (f": {why}" if why else "")
        raise SpecError(
            what,
            "spec",
            "Nothing was written. Keep the bytes with --format raw, or write the schema by hand"
            " (windrow init).",
        )
