"""Times whole unmodified programs under stock NumPy and under gpushim, each in processes of its own.

    python benchmarks/programs.py PROGRAM.py... [--sizes 1e4,1e5,1e6,1e7] [--device cuda|host] [--output FOLDER]

A program file has ``main(n, seed)``. Written to FOLDER: programs.md, a row per program and size with the seconds of the
first and of the best later call of main in its process and of the whole process, start-up included. A ratio above 1
means that gpushim is faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

#: Calls of main after the first, and seconds after which no further one begins.
REPEATS, ENOUGH = 10, 2.0

WORKER = f"""
import json, runpy, sys, time
main = runpy.run_path(sys.argv[1])["main"]
n = int(float(sys.argv[2]))
def call():
    start = time.perf_counter()
    result = main(n, 0)
    for value in result.values() if isinstance(result, dict) else ():
        getattr(value, "tobytes", lambda: None)()  # the results are looked at
    return time.perf_counter() - start
begin = time.perf_counter()
first = call()
later = []
while len(later) < {REPEATS} and (not later or time.perf_counter() - begin < {ENOUGH}):
    later.append(call())
print(json.dumps([first, min(later)]))
"""


def measure(program: Path, size: str, gpushim: str | None, limit: float) -> tuple[float, float, float] | None:
    """Seconds of the first call, of the best later one, and of a process that calls main once; None past the limit."""
    runner = ["-m", "gpushim", "--device", gpushim] if gpushim else []
    once = "import runpy, sys; runpy.run_path(sys.argv[1])['main'](int(float(sys.argv[2])), 0)"
    try:
        done = subprocess.run(
            [sys.executable, *runner, "-c", WORKER, program, size],
            stdout=subprocess.PIPE,
            text=True,
            timeout=limit,
            check=True,
        )
        start = time.perf_counter()
        subprocess.run([sys.executable, *runner, "-c", once, program, size], timeout=limit, check=True)
        whole = time.perf_counter() - start
    except subprocess.TimeoutExpired:
        return None
    first, later = json.loads(done.stdout)
    return first, later, whole


def cell(stock: float, ours: float) -> str:
    return f"{stock:.4g} / {ours:.4g} = {stock / ours:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=Path)
    parser.add_argument("--sizes", default="1e4,1e5,1e6,1e7")
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"))
    parser.add_argument("--limit", type=float, default=60, help="seconds a process may take")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    lines = [
        "Seconds, NumPy / gpushim = ratio.",
        "",
        "| program | n | first call | later calls | whole process |",
        "|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for program in options.programs:
        for size in options.sizes.split(","):
            stock, ours = (measure(program, size, device, options.limit) for device in (None, options.device))
            if stock is None or ours is None:
                row = f"| {program.stem} | {size} | {'NumPy' if stock is None else 'gpushim'}: over {options.limit:g} s | | |"
            else:
                row = f"| {program.stem} | {size} | " + " | ".join(map(cell, stock, ours)) + " |"
            lines.append(row)
            print(row, flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "programs.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
