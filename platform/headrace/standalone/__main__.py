"""Entry point of the Makefile: `python -m headrace.standalone up | demo`."""

import sys

from headrace.standalone.data_folder import SetUpError
from headrace.standalone.environment_file import load_environment_file

USAGE = "usage: python -m headrace.standalone up | demo"


def main(arguments: list[str]) -> int:
    """Runs one command and returns its exit code."""
    match arguments:
        case ["up"]:
            from headrace.standalone.supervisor import up

            return up()
        case ["demo"]:
            from headrace.standalone.demo import demo

            return demo()
        case _:
            print(USAGE, file=sys.stderr)
            return 2


if __name__ == "__main__":
    try:
        load_environment_file()
        sys.exit(main(sys.argv[1:]))
    except SetUpError as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(1)
