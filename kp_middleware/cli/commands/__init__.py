"""The commands, a module for each, of its name: loaded when it is typed.

None imports another. They import from all the other rooms: `report` and `server` late, as a whole,
by their front doors; of `lines`, `input`, `installation`, `explanation` and `output` the modules
that they need, so that no command loads what another one needs.
"""
