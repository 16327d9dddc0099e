"""Values as lines of text, for a person at a terminal: what `page` is for one in a browser.

Imports from `explanation` and `output`. A module at a time is imported from here, none by this
front door; those whose names begin with ``_`` are for this room alone.
"""
