"""The planning step: labels on a grid, boundaries from the log, plans from boundaries."""
