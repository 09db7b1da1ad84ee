"""Entry point of the Makefile: `python -m headrace.standalone up | demo | fetch-model`."""

import sys

from headrace.standalone.data_folder import DataFolder, SetUpError
from headrace.standalone.environment_file import load_environment_file

USAGE = "usage: python -m headrace.standalone up | demo | fetch-model"


def main(arguments: list[str]) -> int:
    """Runs one command and returns its exit code."""
    match arguments:
        case ["up"]:
            from headrace.standalone.supervisor import up

            return up()
        case ["demo"]:
            from headrace.standalone.demo import demo

            return demo()
        case ["fetch-model"]:
            from headrace.standalone.model_fetch import fetch_model

            folder = DataFolder.from_environment()
            folder.create()
            print(fetch_model(folder))
            return 0
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
