"""Seeded JSON documents: whole ones of `models.Scalars`, and broken ones made from them."""

from __future__ import annotations

import random

LITERALS = (
    "0", "-0", "1", "-1", "127", "128", "-129", "32768", "2147483647", "2147483648", "9007199254740991", "9007199254740992",
    "9007199254740993",
    "-9007199254740993", "16777216", "16777217", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615", "18446744073709551616", "123456789012345678901234567890", "1" + "0" * 400, "2.0", "2.7", "-0.0", "1e2",
    "1E+2", "1e-2",
    "1e400", "-1e400", "1e-400", "5e-324", "3.5e38", "3.4028235e38", "0.1", "12.34", "12.345", "12.340", "99999999.99", "100000000.00",
    "123456789012345.67",
    "0.12345678901234567890", "12.3400000000000000001", "1.5e3", "1234e-2", "1.0e0", "01", "+1", "1.", ".5", "-", "0x10", "1_000", "NaN",
    "-NaN",
    "Infinity", "-Infinity", "inf", "nan", "true", "false", "True", "null", "nul", '""', '"a"', '"1"', '"12.34"', '"12.345"', '"1e2"',
    '" 1"', '"true"',
    '"null"', '"NaN"', '"é 😀"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\ude00x"', '"a\\u0000b"', '"\\u0000"', '"\\"key\\": 1"',
    '"\\\\"',
    '":"', '"x\\":"', '"a : b"', '", ]"', '",}"', '", nan,"', '"\t"', '"\\x"', '"\\/"', "'a'", "[]", "{}", "[1,2]", "[1,]", "[,]",
    '{"a":1}', '{"a":1,"a":2}',
    '[{"a":1,"a":2}]', '{"a":{"b":1,"b":2}}', '{"a":NaN}', "[NaN]", "[-Infinity]", '{"a":1,}', "[" * 30 + "]" * 30, "[" * 200 + "]" * 200,
    "/**/1",
    '"2024-02-29T12:00:00Z"', '"2023-02-29T12:00:00Z"', '"2024-01-01T00:00:00"', '"2024-01-01 00:00:00Z"', '"2024-01-01T24:00:00Z"',
    '"2024-01-01T23:59:60Z"',
    '"2024-01-01t00:00:00z"', '"2024-01-01T00:00:00.1+05:30"', '"2024-01-01T00:00:00.123456-23:59"', '"2024-01-01T00:00:00.1234567Z"',
    '"2024-01-01T00:00:00.1234560Z"', '"2024-01-01T00:00:00+24:00"', '"2024-01-01T00:00:00+0530"', '"2024-01-01T00:00Z"',
    '"0001-01-01T00:00:00+01:00"',
    '"9999-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59-01:00"', '"2024-13-01T00:00:00Z"', '"2024-01-01T00:00:00.Z"',
    '"2024-01-01T00:00:00.5Z "',
    '"2024-02-29"', '"2023-02-29"', '"2024-2-9"', '"0000-01-01"', '"0001-01-01"', '"9999-12-31"', '"infinity"', '"epoch"',
    '"2024-01-01\\n"',
    "1760000000000", "253402300799999", "253402300800000", "-62135596800000", "-62135596800001", "1760000000000.5",
    '{"city":"x","zip":7,"geo":{"lat":1.5,"at":"2024-01-01T00:00:00Z"}}', '{"city":null}', '{"zip":"7"}', '{"zip":40000}',
    '{"city":"x","city":"y"}',
    '{"geo":null}', '{"geo":{}}', '{"geo":[]}', '{"geo":{"lat":1,"more":2}}', '{"geo":{"lat":1,"lat":2}}', '{"more":{"city":1}}',
    '{"geo":{"lat":9007199254740993}}',
    '{"city":"x","more":1}', '{"city":["x"]}', '{"City":"x"}', '{"geo":{"at":"2024-01-01"}}', '[{"city":"x"}]',
)  # fmt: skip
KEYS = (
    '"id"', '"tiny"', '"quantity"', '"amount"', '"single"', '"name"', '"paid"', '"price"', '"units"', '"at"', '"ms"', '"day"', '"place"',
    '"o\'d\\"d /~é.[0]"',
    '"\\u0069d"', '"nam\\u0065"', '"NAME"', '"more"', '"other"', '"x\\"name"', '""', '"id "', '"a:b"', '"id\\u0000"', '"place.city"',
    '"\\ud800"', "id",
)  # fmt: skip
FITTING = {
    '"id"': ("1", "42", "-7"), '"tiny"': ("1", "-128"), '"quantity"': ("3", "2147483647"), '"amount"': ("12.5", "3", "1e2", "-0.25"),
    '"single"': ("1.5", "0.1", "7"),
    '"name"': ('"a"', '"é"', '"x\\ny"', '""'), '"paid"': ("true", "false"), '"price"': ('"12.34"', "12.34", "12", "-0.5"),
    '"units"': ("12345678901234567890", '"7"'),
    '"at"': ('"2024-02-29T12:00:00Z"', '"2024-01-01T00:00:00.123456+05:30"'), '"ms"': ("1760000000000", "-1"), '"day"': ('"2024-02-29"',),
    '"place"': ('{"city":"x","zip":7,"geo":{"lat":1.5,"at":"2024-01-01T00:00:00Z"}}', "{}", "null"),
    '"more"': ("1", '"x"', "null", "[]", "[1,2]"),
}  # fmt: skip
INSERTED = (
    b",",
    b"}",
    b"]",
    b'"',
    b":",
    b" ",
    b"\n",
    b"\t",
    b"\x0b",
    b"\x00",
    b"\\",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\xc2\xa0",
    b"1",
    b"null",
)


def documents(n: int, seed: int) -> list[bytes]:
    """n documents, about half of them whole."""
    r = random.Random(seed)
    return [_mutated(r, _document(r)) if r.random() < 0.3 else _document(r) for _ in range(n)]


def _document(r: random.Random) -> bytes:
    keys = ['"id"', *r.sample(list(FITTING)[1:], r.randrange(6))]
    if r.random() < 0.2:
        keys.append(r.choice(KEYS))
    r.shuffle(keys)
    gap = r.choice(("", "", " ", "\n  "))
    fields = [f"{key}{r.choice(('', '', ' '))}:{gap}{_value(r, key)}" for key in keys]
    return ("{" + gap + f",{gap}".join(fields) + gap + "}").encode()


def _value(r: random.Random, key: str) -> str:
    fitting = FITTING.get(key, LITERALS)
    return r.choice(LITERALS) if r.random() < 0.15 else r.choice(fitting)


def _mutated(r: random.Random, document: bytes) -> bytes:
    at = r.randrange(len(document) + 1)
    kind = r.randrange(5)
    if kind == 0:
        return document[:at] + r.choice(INSERTED) + document[at:]
    if kind == 1:
        return document[:at]
    if kind == 2:
        return document[:at] + document[at + 1 :]
    if kind == 3:
        return document + r.choice((b" ", b"\n", b"\x00", b"{}", b" x", b",", document))
    return r.choice((b"", b" ", b"[]", b"null", b"1", b'"x"', b"[" + document + b"]", b"\xef\xbb\xbf" + document, b"\xff\xfe" + document))
