"""What is installed here: the user's settings, whether all is usable, and a try of it.

Imports from `output`. A module at a time is imported from here, none by this front door: most of
them load pydantic, or all of the library.
"""
