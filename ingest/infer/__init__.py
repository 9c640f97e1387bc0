"""What columns a topic's messages have, and how they are to be read: from a sample of
them, or from a registry's schemas.
"""
