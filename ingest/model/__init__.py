"""The values that windrow works with. They are immutable, and convert to JSON and back.

An offset is always that of the next message to read, and ranges are half-open. Instants are
aware datetimes in UTC. A value checks its invariants when it is made and when it is read
back from JSON.
"""
