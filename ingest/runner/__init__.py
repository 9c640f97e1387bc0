"""The steps of a window, in their order: from its boundaries to its receipt.

These modules know interfaces only, never their implementations.
"""
