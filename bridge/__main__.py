"""`python -m bridge` is `sebridge`."""

import sys

from bridge.cli import main

sys.exit(main())
