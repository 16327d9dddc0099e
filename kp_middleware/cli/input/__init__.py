"""What is typed and piped in: options and arguments that several commands have, and texts.

Imports from `installation`, `explanation` and `output`. A module at a time is imported from here,
none by this front door: a command starts with what it needs.
"""
