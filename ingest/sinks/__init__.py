"""Sinks: stage on executors, then one commit of data and receipt on the driver.

One folder a kind, and beside them what all kinds share.
"""
