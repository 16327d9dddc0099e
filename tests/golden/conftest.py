"""The scene, played once for each worker: everything below only looks at it."""

import sys
from pathlib import Path

_AGENTS = Path(__file__).parents[1] / "adapters" / "kp_langchain"
sys.path.append(str(_AGENTS))
