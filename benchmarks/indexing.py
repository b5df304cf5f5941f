"""Times fancy indexing and random draws: unmodified NumPy under gpushim, CuPy and torch, one run, one GPU.

    python benchmarks/indexing.py [--size 1e7] [--output FOLDER] [--libraries gpushim,cupy,torch]

Each library has a process of its own; every result is computed. Milliseconds a call; the ratios are the peer's time
over gpushim's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from fusion import compile_programs

HERE = Path(__file__).resolve().parent


def cases(library: str, n: int):
    """Name: a function without arguments."""
    rng = np.random.default_rng(1)
    x, index = rng.normal(size=n), rng.integers(0, n, n)
    few, many = index[: n // 10].copy(), n * 10
    rows, columns = rng.normal(size=(n // 100, 100)), rng.integers(0, n // 100, n // 100)

    def assign(a, key, value):
        a[key] = value

    if library == "torch":
        import torch

        put = lambda a: torch.from_numpy(a).cuda()
        nonzero, take = torch.nonzero, torch.take
        draws = {"random 10n": lambda: torch.rand(many, dtype=torch.float64, device="cuda")}
        repeat = lambda a: torch.repeat_interleave(a, 3)
    elif library == "cupy":
        import cupy

        put, nonzero, take, repeat = cupy.asarray, cupy.nonzero, cupy.take, lambda a: cupy.repeat(a, 3)
        generator = cupy.random.default_rng(1)
        draws = {
            "random 10n": lambda: generator.random(many),
            "integers 10n": lambda: generator.integers(0, 64, many),
        }
    else:
        import gpushim

        gpushim.install(device=os.environ.get("GPUSHIM_DEVICE", "auto"))
        put, nonzero, take, repeat = lambda a: a + a.dtype.type(0), np.nonzero, np.take, lambda a: np.repeat(a, 3)
        generator = np.random.default_rng(1)
        draws = {
            "random 10n": lambda: generator.random(many),
            "uniform 10n": lambda: generator.uniform(-1, 2, many),
            "integers 10n": lambda: generator.integers(0, 64, many),
        }
    x, index, few, rows, columns = put(x), put(index), put(few), put(rows), put(columns)
    mask = x > 0.3
    chosen = x[mask]
    y = put(rng.normal(size=n))
    return {
        "a[mask]": lambda: x[mask],
        "a[mask] = scalar": lambda: assign(y, mask, 0.5),
        "a[mask] = array": lambda: assign(y, mask, chosen),
        "a[indices]": lambda: x[index],
        "take": lambda: take(x, index),
        "take n/10": lambda: take(x, few),
        "a[indices] = array": lambda: assign(y, index, x),
        "a[indices] = scalar": lambda: assign(y, index, 2.5),
        "rows[indices]": lambda: rows[columns],
        "nonzero": lambda: nonzero(mask),
        "repeat 3": lambda: repeat(x),
        **draws,
    }


def measure(library: str, n: int) -> dict[str, float]:
    table = cases(library, n)
    if library == "gpushim":
        import gpushim

        wait, evaluate = gpushim.synchronize, gpushim._shim.evaluate
    elif library == "cupy":
        import cupy

        wait, evaluate = cupy.cuda.get_current_stream().synchronize, lambda: None
    else:
        import torch

        wait, evaluate = torch.cuda.synchronize, lambda: None
    results = {}
    for name, call in table.items():
        if library == "gpushim":
            compile_programs(call)
        for _ in range(3):
            start = time.perf_counter()
            result = call()
            evaluate()
            wait()
        calls = max(1, min(20, int(0.05 / (time.perf_counter() - start))))
        rounds = []
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(calls):
                result = call()
                evaluate()
            wait()
            rounds.append((time.perf_counter() - start) / calls)
        del result
        results[name] = statistics.median(rounds)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=1e7)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--libraries", default="gpushim,cupy,torch")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        json.dump(measure(options.measure, int(options.size)), sys.stdout)
        return
    results = {}
    for library in options.libraries.split(","):
        command = [sys.executable, __file__, "--measure", library, "--size", str(options.size)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode == 0:
            results[library] = json.loads(done.stdout)
        else:
            print(f"benchmarks: {library} failed", file=sys.stderr)
    lines = [f"n = {int(options.size)}, float64. Milliseconds; ratios are the peer's time over gpushim's.", ""]
    peers = [library for library in results if library != "gpushim"]
    lines.append("| case | gpushim | " + " | ".join(f"{peer} | ratio" for peer in peers) + " |")
    lines.append("|---|---|" + "---|---|" * len(peers))
    for name, mine in results["gpushim"].items():
        cells = [f"{mine * 1e3:.3f}"]
        for peer in peers:
            theirs = results[peer].get(name, float("nan"))
            cells += [f"{theirs * 1e3:.3f}", f"{theirs / mine:.2f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    page = "\n".join(lines)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "indexing.md").write_text(f"# Indexing\n\nMade by `python benchmarks/indexing.py`.\n\n{page}\n")
    print(page)


if __name__ == "__main__":
    main()
