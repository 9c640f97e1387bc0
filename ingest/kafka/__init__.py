"""All code that talks to a Kafka cluster.

It holds properties, error codes, metadata requests, scans, transactions, the check of a
cluster's identity, and an embedded broker for demos and tests.
"""
