"""The interfaces between the runner and its surroundings, one file each.

Each has a contract suite in tests/contracts that every implementation passes.
`ingest.runner` knows these interfaces and the values of `ingest.model`, and never a
client.
"""
