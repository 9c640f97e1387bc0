"""Sinks: tasks stage rows on executors, then the driver makes one commit of data and receipt.

Each kind has a folder. The code that all kinds share is in `kit`.
"""
