"""View models: typed values and sentences about them; each is loaded when used."""
