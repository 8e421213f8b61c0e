"""`python -m bridge.simulator`: the same as `sebridge simulate`."""

import argparse
import sys

from bridge.simulator.command import DESCRIPTION, add_arguments, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="sebridge simulate", description=DESCRIPTION)
    add_arguments(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
