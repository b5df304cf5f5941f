"""Times CuPy-style code, `xp = gpushim` against `xp = cupy`, each in a process of its own, one run.

    python benchmarks/library.py [--largest 1e8] [--turns 2]

Microseconds a call with its evaluation, the median of rounds that end by waiting for the device; the last column says how many times
gpushim is faster. The libraries take turns, and each case's best turn counts: a GPU that has become warm is a few percent slower, for
whoever runs then.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def measure(library: str, largest: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, str(HERE / "measure.py"), library, "compute", "--largest", largest]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", default="1e8")
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    turns = [[measure(library, options.largest) for library in ("gpushim-xp", "cupy")] for _ in range(options.turns)]
    ours, theirs = (
        {case: min((turn[k][case] for turn in turns), key=lambda result: result["seconds"]) for case in turns[0][k]} for k in (0, 1)
    )
    print(f"{'case':24s} {'gpushim':>10s} {'CuPy':>10s}")
    for case, result in ours.items():
        mine, peer = result["seconds"] * 1e6, theirs[case]["seconds"] * 1e6
        print(f"{case:24s} {mine:10.1f} {peer:10.1f} {peer / mine:6.2f}")


if __name__ == "__main__":
    main()
