"""The examples that are modules can be imported, as an adapter's tests import it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples" / "adapter"))
