"""`python -m headrace.command_line`, where the `headrace` script is not on the path."""

import sys

from headrace.command_line.main import main

if __name__ == "__main__":
    sys.exit(main())
