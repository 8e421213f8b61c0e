"""`python -m bridge.service` is `sebridge service`, with the standard library alone."""

import sys

from bridge.service.command import main

sys.exit(main(sys.argv[1:]))
