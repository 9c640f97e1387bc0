"""The interfaces between windrow and what it stands on; each has a contract suite in
tests/contracts that every implementation passes.

`ingest.runner` knows these and the values of `ingest.model`; it never sees a client.
"""
