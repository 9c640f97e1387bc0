"""The order of the steps: a window from its boundaries to its receipt.

It knows interfaces only, never what stands behind them.
"""
