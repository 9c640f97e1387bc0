"""Functions that numba compiles to machine code.

The code is made once for a machine and a version; everybody else loads it without
numba.
"""
