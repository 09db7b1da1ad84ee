"""`make bench`: every benchmark, one after the other, each in a process of its own.

`python -m benchmarks fairness curve` runs those named only; `--venvs PATH` says where the peers'
environments are, or are to be made.
"""

import argparse
import subprocess
import sys

BENCHMARKS = (
    "engine_decode",
    "prefix_ttft",
    "scheduler_cost",
    "batching",
    "fairness",
    "speculation",
    "curve",
    "platform_over_engine",
    "usage",
    "holds",
    "bulk_claim",
    "bulk_lines",
    "bulk_summaries",
    "bulk_beside_interactive",
    "gateway_cost",
    "peers",
)
WITH_PEERS = frozenset({"gateway_cost", "peers"})
"""They make environments of other software."""


def main() -> int:
    """Runs them all; the exit status is that of the first that failed, and the others run too."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}")
    parser.add_argument("--venvs", default=".bench", help="folder of the peers' environments")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark named {', '.join(sorted(unknown))}")
    status = 0
    for name in options.names or BENCHMARKS:
        command = [sys.executable, "-m", f"benchmarks.{name}"]
        if name in WITH_PEERS:
            command += ["--venvs", options.venvs]
        done = subprocess.run(command, check=False)
        status = status or done.returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
