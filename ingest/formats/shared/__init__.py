"""What the formats share: the two ways to a verdict, and how values that a pass over
the bytes has found become Arrow's arrays.
"""
