"""``python -m kgmrf`` is ``kgmrf``."""

import sys

from kgmrf.cli import main

if __name__ == "__main__":
    sys.exit(main())
