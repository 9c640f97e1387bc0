"""Good and hostile lines with their verdicts for the model `Order` (id, name, amount, note).

A verdict is a row or a reason. `-` in a line is null.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any


def row(number: int, name: str, amount: str, note: str | None) -> tuple[Any, ...]:
    """Returns a row's values."""
    return number, name, Decimal(amount), note


GOOD: dict[bytes, tuple[Any, ...]] = {
    b"1,a,2.50,x": row(1, "a", "2.50", "x"),
    b"1,a,2.50,": row(1, "a", "2.50", ""),
    b"1,a,2.50,-": row(1, "a", "2.50", None),
    b'1,a,2.50,"-"': row(1, "a", "2.50", "-"),
    b"1,,0,x": row(1, "", "0.00", "x"),
    b'"1","a","2.50","x"': row(1, "a", "2.50", "x"),
    b'1,"a,b",2,x': row(1, "a,b", "2.00", "x"),
    b'1,"a""b",2,x': row(1, 'a"b', "2.00", "x"),
    b'1,"""",2,x': row(1, '"', "2.00", "x"),
    b'1,"",2,x': row(1, "", "2.00", "x"),
    b'1,a"b,2,x': row(1, 'a"b', "2.00", "x"),
    b'1,a"",2,x': row(1, 'a""', "2.00", "x"),
    b'1, "a",2,x': row(1, ' "a"', "2.00", "x"),
    b'1,"a\nb",2,x': row(1, "a\nb", "2.00", "x"),
    b'1,"a\r\nb",2,"\n"': row(1, "a\r\nb", "2.00", "\n"),
    b"1,a,2,x\n": row(1, "a", "2.00", "x"),
    b"1,a,2,x\r\n": row(1, "a", "2.00", "x"),
    b'1,a,2,"x"\r\n': row(1, "a", "2.00", "x"),
    b"-9223372036854775808,a,-1.5,x": row(-(2**63), "a", "-1.50", "x"),
    b"9223372036854775807,a,9999999.99,x": row(2**63 - 1, "a", "9999999.99", "x"),
    b"0,a,1e2,x": row(0, "a", "100.00", "x"),
    b"-0,a,-0,x": row(0, "a", "0.00", "x"),
    b"1,a,1.5000,x": row(1, "a", "1.50", "x"),
    "1,grün€𐍈,2,ß".encode(): row(1, "grün€𐍈", "2.00", "ß"),
    b"1,\\,2,x\\": row(1, "\\", "2.00", "x\\"),
    b"1,\x00\x01\t,2,x": row(1, "\x00\x01\t", "2.00", "x"),
    b"1,\xc2\x85\xe2\x80\xa8,2,x": row(1, "\x85\u2028", "2.00", "x"),
    b"1,;|\t',2,x": row(1, ";|\t'", "2.00", "x"),
    b"1,\xef\xbb\xbf,2,x": row(1, "\ufeff", "2.00", "x"),
    b"1,a,2,=1+1": row(1, "a", "2.00", "=1+1"),
}
BAD: dict[bytes, str] = {
    b"": "field_count",
    b"\n": "field_count",
    b"1,hunter2,2": "field_count",
    b"1,hunter2,2,x,y": "field_count",
    b"1,hunter2,2,x,": "field_count",
    b",,,,,,hunter2": "field_count",
    b'1,"hunter2,2,x': "not_csv",
    b'1,"hunter2"b,2,x': "not_csv",
    b'1,"hunter2" ,2,x': "not_csv",
    b'1,"hunter2"",2,x': "not_csv",
    b'"': "not_csv",
    b'1,hunter2,2,"x""': "not_csv",
    b"1,hunter2,2,x\n2,b,3,y": "not_csv",
    b"1,hunter2,2,x\n\n": "not_csv",
    b"1,hunter2,2,x\r": "not_csv",
    b"1,hun\nter2,2,x": "not_csv",
    b"\n1,hunter2,2,x": "not_csv",
    b"\xef\xbb\xbf1,hunter2,2,x": "not_csv",
    b"1,hunter2\xff,2,x": "invalid_utf8",
    b"1,hunter2\xed\xa0\x80,2,x": "invalid_utf8",
    b'1,"hunter2\xc3",2,x': "invalid_utf8",
    b"hunter2,a,2,x": "wrong_format",
    b"1.0,hunter2,2,x": "wrong_type",
    b"1e3,hunter2,2,x": "wrong_type",
    b"+1,hunter2,2,x": "wrong_format",
    b"01,hunter2,2,x": "wrong_format",
    b" 1,hunter2,2,x": "wrong_format",
    b"1 ,hunter2,2,x": "wrong_format",
    b",hunter2,2,x": "wrong_format",
    b"-,hunter2,2,x": "missing",
    b"0x10,hunter2,2,x": "wrong_format",
    b"1_000,hunter2,2,x": "wrong_format",
    "\u0661,hunter2,2,x".encode(): "wrong_format",
    b"9223372036854775808,hunter2,2,x": "out_of_range",
    b"-9223372036854775809,hunter2,2,x": "out_of_range",
    b"1" * 5000 + b",hunter2,2,x": "out_of_range",
    b"1,hunter2,2.005,x": "out_of_range",
    b"1,hunter2,10000000,x": "out_of_range",
    b"1,hunter2,1e99999999999999999999999,x": "out_of_range",
    b"1,hunter2,nan,x": "wrong_format",
    b"1,hunter2,1.,x": "wrong_format",
    b"1,hunter2,.5,x": "wrong_format",
    b'1,hunter2,"1,5",x': "wrong_format",
    b"1,-,2,x,hunter2": "field_count",
    b"1,-,2,hunter2": "missing",
    b"1,hunter2,-,x": "missing",
}
