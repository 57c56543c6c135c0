"""``python -m rnade`` is the command ``rnade``."""

import sys

from rnade.cli import main

sys.exit(main())
