"""Sinks: stage on executors, then one commit of data and receipt on the driver.

A folder for each kind; what all kinds share is in `kit`.
"""
