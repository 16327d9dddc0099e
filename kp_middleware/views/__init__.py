"""View models: typed values and the sentences about them, for pages, report and commands."""
