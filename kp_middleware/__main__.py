"""``python -m kp_middleware`` is the command line."""

from kp_middleware.cli import main

main()
