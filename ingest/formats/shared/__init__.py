"""Parts that formats share.

They join the two ways to a verdict, and make Arrow's arrays of what a compiled pass
wrote.
"""
