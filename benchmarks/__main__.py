"""`make bench`: every benchmark, one after the other, each in a process of its own."""

import subprocess
import sys

BENCHMARKS = ("engine_decode", "prefix_ttft", "platform_over_engine")


def main() -> int:
    """Runs all; the exit status is that of the first that failed."""
    for name in BENCHMARKS:
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False)
        if done.returncode != 0:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
