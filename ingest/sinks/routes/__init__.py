"""One topic into several tables: which row goes where, and how a window that lies in
many tables is committed once.
"""
