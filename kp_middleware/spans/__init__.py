"""Agents' runs as others tell them: by OpenTelemetry's spans in its dialects, and by messages.

Others import its modules, none by this package.
"""
