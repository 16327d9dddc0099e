"""What is printed and written: rows, tables, progress, exit codes, files.

Imports from no other room. A module at a time is imported from here, none by this front door: a
command starts with what it needs.
"""
