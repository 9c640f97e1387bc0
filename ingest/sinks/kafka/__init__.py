"""The Kafka sink: rows become messages of a topic, exactly once for each split, or for
each window.
"""
