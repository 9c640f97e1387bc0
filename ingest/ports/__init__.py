"""The interfaces between the runner and its surroundings, one file each.

Each interface has a contract suite in tests/contracts, which every implementation passes.
`ingest.runner` imports these interfaces and the values of `ingest.model`, and never a client.
"""
