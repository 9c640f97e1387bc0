"""Values as JSON, and back."""

from __future__ import annotations

import msgspec
import pytest

from windrow.ingest.model.codec import from_json, to_json
from windrow.ingest.model.plan import Window


def test_a_value_comes_back_as_it_was() -> None:
    """A value is read back from text or bytes.

    JSON of another type or with a broken invariant is refused.
    """
    assert to_json(Window("p", 1, 2)) == '{"pipeline":"p","start":1,"end":2}'
    assert from_json('{"pipeline":"p","start":1,"end":2}', Window) == from_json(
        b'{"pipeline":"p","start":1,"end":2}', Window
    )
    for text in ('{"pipeline":"p"}', '{"pipeline":"p","start":2,"end":1}'):
        with pytest.raises(msgspec.ValidationError):
            from_json(text, Window)
