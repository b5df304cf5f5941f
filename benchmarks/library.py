"""Times CuPy-style code, `xp = gpushim` against `xp = cupy`, each in a process of its own, one run.

    python benchmarks/library.py [--largest 1e8] [--turns 2]

Microseconds a call with its evaluation, the median of rounds that end by waiting for the device; the last column says how many times
gpushim is faster. The libraries take turns, and each case's best turn counts: a GPU that has become warm is a few percent slower, for
whoever runs then.
"""

from __future__ import annotations

import argparse
import sys

from run import TURNS, in_turns, ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=float, default=1e8)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"), help="host: a trial run, CuPy left out")
    options = parser.parse_args()
    libraries = ["gpushim-xp"] + ["cupy"] * (options.device == "cuda")
    ours, *theirs = in_turns(libraries, "compute", options, options.turns).values()
    command = " ".join(["python benchmarks/library.py", *sys.argv[1:]])
    print(f"# CuPy-style code\n\nMade by `{command}`.\n")
    print(
        "Microseconds; the ratio is CuPy's time over gpushim's.\n\n| case | gpushim | CuPy | ratio |\n|---|---|---|---|"
    )
    for case, result in ours.items():
        cells = [f"{result['seconds'] * 1e6:.1f}"]
        cells += [f"{peer[case]['seconds'] * 1e6:.1f}" for peer in theirs] or [""]
        cells += [ratio(peer[case], result) for peer in theirs] or [""]
        print(f"| {case} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
