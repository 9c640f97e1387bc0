"""Reads one split of a topic-partition into Arrow batches of messages."""
