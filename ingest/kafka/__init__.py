"""Everything that speaks to a Kafka cluster, once: properties, error codes, metadata
questions, scans, identity, a broker for trying.
"""
