"""The nouns of windrow: immutable values that convert to JSON and back.

An offset always means the next message to read, and ranges are half-open. Instants are
aware datetimes in UTC. A value checks its own invariants when it is made and when it is
read back from JSON.
"""
