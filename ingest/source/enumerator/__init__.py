"""The only step that asks "where": labels on a grid, boundaries from the log, plans
from boundaries.
"""
