"""Decide what a run is worth and whether it may leave: pure functions, standard library alone.

A module at a time is imported from here, none by this front door.
"""
