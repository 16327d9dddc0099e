"""Show the file in a browser; each part is loaded when used."""
