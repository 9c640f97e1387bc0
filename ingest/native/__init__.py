"""Functions that numba compiles to machine code.

The code is made once for a machine and a version. After that, processes load it without numba.
"""
