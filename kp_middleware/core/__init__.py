"""Scoring and gating of runs: pure functions that need only the standard library.

Import from the modules directly, so that each is loaded when needed.
"""
