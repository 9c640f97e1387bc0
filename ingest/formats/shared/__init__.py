"""Code that formats share.

It joins the results of a compiled pass and of a strict decoder. It also makes Arrow arrays
of the entries that a compiled pass wrote.
"""
