"""JSON: most messages in one compiled pass, every other one strictly, by the columns of
one pandera model.
"""
