"""``python -m kp_middleware`` is the command line."""

from kp_middleware.inspection import main

main()
