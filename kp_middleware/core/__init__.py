"""Score runs and gate them: pure functions on the standard library alone.

Import its modules directly; this package exports nothing.
"""
