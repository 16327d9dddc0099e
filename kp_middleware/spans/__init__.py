"""Read agents' runs from OpenTelemetry spans, in any dialect, and from chat messages.

Import its modules; this package itself exports nothing.
"""
