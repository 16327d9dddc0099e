"""What is to be said of scores, as values: pure functions of what the file says.

Why a trace scored so, what would have changed the verdict, how two traces differ, what other
thresholds would do. Imports from `output`, how words are put. A module at a time is imported from
here, none by this front door; those whose names begin with ``_`` are for this room alone.
"""
