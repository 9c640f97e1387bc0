"""The steps of a window, in their order: from its boundaries to its receipt.

These modules import interfaces (`ingest.ports`) only, no implementations.
"""
