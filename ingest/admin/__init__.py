"""What else can be asked of a pipeline, or done to it: how far it is behind, whether it
is right, what fixes it, how one begins.
"""
