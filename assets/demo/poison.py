"""Twenty-five messages that are no orders, each wrong in its own way. Pure."""

from __future__ import annotations

_ORDER = (
    '{"order_id":%(order_id)s,"customer":%(customer)s,"amount":%(amount)s,'
    '"currency":%(currency)s,"sku":%(sku)s,"quantity":%(quantity)s,'
    '"created_at":%(created_at)s,"express":%(express)s,"ship_to":%(ship_to)s}'
)
_GOOD = {
    "order_id": "7",
    "customer": '"customer-poison"',
    "amount": "9.50",
    "currency": '"EUR"',
    "sku": '"SKU-00007"',
    "quantity": "1",
    "created_at": '"2026-01-01T12:00:00Z"',
    "express": "false",
    "ship_to": "null",
}


def _order(**wrong_fields: str) -> bytes:
    return (_ORDER % (_GOOD | wrong_fields)).encode()


POISON: tuple[tuple[str, bytes], ...] = (
    ("not JSON at all", b"<order id='7'/>"),
    ("empty", b""),
    ("blank", b"   "),
    ("cut short", _order()[:60]),
    ("invalid UTF-8", _order(customer='"caf@"').replace(b"caf@", b"caf\xe9")),
    ("byte-order mark", b"\xef\xbb\xbf" + _order()),
    ("text after the document", _order() + b" thanks"),
    ("two documents", _order() + _order()),
    ("the document null", b"null"),
    ("a list", b"[" + _order() + b"]"),
    ("NaN", _order(amount="NaN")),
    ("Infinity", _order(amount="Infinity")),
    ("a duplicate key", _order(quantity='1,"quantity":2')),
    ("a missing field", _order().replace(b'"sku":"SKU-00007",', b"")),
    ("null for a required field", _order(customer="null")),
    ("string for an integer", _order(quantity='"1"')),
    ("number for a string", _order(customer="7")),
    ("boolean for an integer", _order(order_id="true")),
    ("a fraction for an integer", _order(quantity="2.7")),
    ("2.0 for an integer", _order(quantity="2.0")),
    ("an integer beyond the column's width", _order(quantity="3000000000")),
    ("more digits than the decimal holds", _order(amount="9.505")),
    ("a timestamp without an offset", _order(created_at='"2026-01-01T12:00:00"')),
    ("a wrong type inside a struct", _order(ship_to='{"city":"Bergen","postcode":5003}')),
    ("a value that the schema's check refuses", _order(currency='"XXX"')),
)
"""(the mistake, the message's value)."""
