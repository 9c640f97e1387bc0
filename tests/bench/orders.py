"""Random orders of about 158 bytes, from a seed."""

from __future__ import annotations

import json
import random

FIRST_MS = 1_760_000_000_000
DISTINCT = 20_000
CUSTOMERS = 100_000


def values(distinct: int = DISTINCT) -> list[bytes]:
    """Returns the distinct orders as JSON."""
    r = random.Random(1)
    return [
        json.dumps(
            {
                "order_id": i,
                "customer": f"customer-{r.randrange(CUSTOMERS)}",
                "amount": round(r.random() * 1000, 2),
                "currency": r.choice(["EUR", "USD", "CNY"]),
                "sku": f"SKU-{r.randrange(5000):05d}",
                "quantity": r.randrange(1, 20),
                "created_at": FIRST_MS + i,
                "note": None if i % 3 else "leave at the door, ring twice",
            },
            separators=(",", ":"),
        ).encode()
        for i in range(distinct)
    ]
