"""The nouns of windrow: immutable values, JSON both ways.

Offsets always mean the next message to read; ranges are half-open. Instants are aware
datetimes in UTC. A value checks its own invariants when it is made and when it is read
back from JSON.
"""
