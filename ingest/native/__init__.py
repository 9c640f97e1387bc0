"""Functions that numba compiles to machine code: made once for a machine and a version,
and loaded by everybody else without numba.
"""
