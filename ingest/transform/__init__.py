"""Columns -> columns. The pandera model's own checks are one of them, the last."""
