"""``python -m nbsketch`` is the command ``nbsketch``."""

import sys

from nbsketch.cli import main

if __name__ == "__main__":
    sys.exit(main())
