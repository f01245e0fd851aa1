"""The class-data archive that tests, demo and benchmarks share, so that their JVMs start in half the time.

    python -m tools.class_data

makes it where none fits. Each of them works without it, too.
"""

from __future__ import annotations

import os
import sys

from tilth.warehouse import make_class_data, warehouse_settings
from tools.broker import JAVA_HOME, ROOT

#: Node settings.
CLASS_DATA = {"warehouse.class-data": str(ROOT / ".cache" / "class-data")}


def main() -> None:
    """Make the archive; exit code 1 where that fails."""
    os.environ.setdefault("JAVA_HOME", JAVA_HOME.read_text().strip())
    sys.exit(not make_class_data(warehouse_settings(CLASS_DATA)))


if __name__ == "__main__":
    main()
