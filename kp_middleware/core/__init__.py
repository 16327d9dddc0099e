"""Score runs and gate them: pure functions on the standard library alone.

Each module is loaded when it is needed: import from it directly.
"""
