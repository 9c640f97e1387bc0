"""Everything that talks to a Kafka cluster.

Properties, error codes, metadata requests, scans, transactions, the check of a
cluster's identity, and an embedded broker for trying.
"""
