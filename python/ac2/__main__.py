"""``python -m ac2 train.py``: runs a program as a whole in a region. docs/launcher.md."""

import sys

from ac2._launcher import main

sys.exit(main())
