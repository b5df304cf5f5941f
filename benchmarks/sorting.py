"""Times sorting, searching, counting and scans: unmodified NumPy under gpushim, CuPy and PyTorch, one run, one GPU.

    python benchmarks/sorting.py [--size 1e7] [--output FOLDER] [--libraries gpushim,cupy,torch] [--only TEXT]

As benchmarks/fusion.py: every call's result is computed, and a round ends when the device has finished. Each library has a
process of its own. A case that a library has no function for is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from fusion import compile_programs, median_seconds

HERE = Path(__file__).resolve().parent


def cases(n: int) -> dict[str, tuple]:
    """Name: (NumPy's form, PyTorch's form or None, inputs). Both take the module first."""
    rng = np.random.default_rng(1)
    f64, i64 = rng.normal(size=n), rng.integers(-(2**62), 2**62, n)
    few, many = rng.integers(0, 1000, n), rng.integers(0, n // 10, n)
    f32, square = f64.astype("f4"), rng.normal(size=(n // 1000, 1000))
    table, edges = np.sort(rng.normal(size=n // 10)), np.linspace(-4, 4, 101)
    kernel, knots = rng.normal(size=101), np.linspace(-4, 4, 10_001)
    long = rng.normal(size=n * 10)
    return {
        "sort f64": (lambda xp, a: xp.sort(a), lambda t, a: t.sort(a)[0], [f64]),
        "sort f32": (lambda xp, a: xp.sort(a), lambda t, a: t.sort(a)[0], [f32]),
        "sort i64": (lambda xp, a: xp.sort(a), lambda t, a: t.sort(a)[0], [i64]),
        "sort i64, few values": (lambda xp, a: xp.sort(a), lambda t, a: t.sort(a)[0], [few]),
        "sort f64 rows of 1000": (lambda xp, a: xp.sort(a, axis=1), lambda t, a: t.sort(a, 1)[0], [square]),
        "sort f64 columns": (lambda xp, a: xp.sort(a, axis=0), lambda t, a: t.sort(a, 0)[0], [square]),
        "argsort f64": (lambda xp, a: xp.argsort(a), lambda t, a: t.argsort(a), [f64]),
        "argsort f32": (lambda xp, a: xp.argsort(a), lambda t, a: t.argsort(a), [f32]),
        "argsort i64": (lambda xp, a: xp.argsort(a), lambda t, a: t.argsort(a), [i64]),
        "partition f64": (lambda xp, a: xp.partition(a, len(a) // 2), None, [f64]),
        "unique i64": (lambda xp, a: xp.unique(a), lambda t, a: t.unique(a), [many]),
        "unique f64": (lambda xp, a: xp.unique(a), lambda t, a: t.unique(a), [f64]),
        "bincount 1000 bins": (lambda xp, a: xp.bincount(a), lambda t, a: t.bincount(a), [few]),
        "bincount many bins": (lambda xp, a: xp.bincount(a), lambda t, a: t.bincount(a), [many]),
        "bincount weights": (lambda xp, a, w: xp.bincount(a, w), lambda t, a, w: t.bincount(a, w), [many, f64]),
        "histogram 100 bins": (lambda xp, a: xp.histogram(a, 100)[0], lambda t, a: t.histc(a, 100), [f64]),
        "histogram given edges": (lambda xp, a, e: xp.histogram(a, e)[0], None, [f64, edges]),
        "median": (lambda xp, a: xp.median(a), lambda t, a: t.median(a), [f64]),
        "percentile": (
            lambda xp, a: xp.percentile(a, [5, 50, 95]),
            lambda t, a: t.sort(a)[0][[len(a) // 20, len(a) // 2]],
            [f64],
        ),
        "searchsorted": (lambda xp, t, v: xp.searchsorted(t, v), lambda t, a, v: t.searchsorted(a, v), [table, f64]),
        "digitize": (lambda xp, v, e: xp.digitize(v, e), lambda t, v, e: t.bucketize(v, e), [f64, edges]),
        "interp": (lambda xp, x, a, b: xp.interp(x, a, b), None, [f64, knots, knots**2]),
        "convolve 101": (lambda xp, a, k: xp.convolve(a, k, "same"), None, [f64, kernel]),
        "diff": (lambda xp, a: xp.diff(a), lambda t, a: t.diff(a), [f64]),
        "cumsum, ten times longer": (lambda xp, a: xp.cumsum(a), lambda t, a: t.cumsum(a, 0), [long]),
    }


def measure(library: str, n: int, only: str) -> dict[str, float]:
    results = {}
    for name, (numpy_form, torch_form, inputs) in cases(n).items():
        if only not in name:
            continue
        if library == "gpushim":
            import gpushim

            gpushim.install(device=os.environ.get("GPUSHIM_DEVICE", "auto"))
            arrays = [a + 0 for a in inputs]
            call = lambda f=numpy_form, a=arrays: f(np, *a)
            compile_programs(call)
            seconds = median_seconds(call, gpushim._shim.evaluate, lambda _: gpushim.synchronize())
        elif library == "cupy":
            import cupy

            arrays = [cupy.asarray(a) for a in inputs]
            wait = cupy.cuda.get_current_stream().synchronize
            try:
                seconds = median_seconds(
                    lambda f=numpy_form, a=arrays: f(cupy, *a), lambda: None, lambda _, w=wait: w()
                )
            except Exception as problem:
                print(f"cupy: {name}: {problem}", file=sys.stderr)
                continue
        elif torch_form is None:
            continue
        else:
            import torch

            arrays = [torch.from_numpy(a).cuda() for a in inputs]
            seconds = median_seconds(
                lambda f=torch_form, a=arrays: f(torch, *a), lambda: None, lambda _: torch.cuda.synchronize()
            )
        results[name] = seconds
        del arrays
    return results


def table(results: dict[str, dict[str, float]], n: int, out) -> None:
    print(f"{n:,} elements. Milliseconds; the ratio is the faster peer's time over gpushim's.\n", file=out)
    print("| case | gpushim | CuPy | PyTorch | ratio |\n|---|---|---|---|---|", file=out)
    for name, mine in results["gpushim"].items():
        peers = [results.get(library, {}).get(name, float("inf")) for library in ("cupy", "torch")]
        cells = ["" if p == float("inf") else f"{p * 1e3:.4f}" for p in peers]
        best = min(peers)
        ratio = "" if best == float("inf") else f"{best / mine:.2f}"
        print(f"| {name} | {mine * 1e3:.4f} | {cells[0]} | {cells[1]} | {ratio} |", file=out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=1e7)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--libraries", default="gpushim,cupy,torch")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains it")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    n = int(options.size)
    if options.measure:
        json.dump(measure(options.measure, n, options.only), sys.stdout)
        return
    results = {}
    for library in options.libraries.split(","):
        start = time.perf_counter()
        command = [sys.executable, __file__, "--measure", library, "--size", str(n), "--only", options.only]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode == 0:
            results[library] = json.loads(done.stdout)
        elif library == "gpushim":
            sys.exit("benchmarks: gpushim failed")
        print(f"{library}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "sorting.json").write_text(json.dumps(results, indent=1))
    with open(options.output / "sorting.md", "w") as page:
        print("# Sorting, searching, counting\n\nMade by `python benchmarks/sorting.py`.\n", file=page)
        table(results, n, page)
    table(results, n, sys.stdout)


if __name__ == "__main__":
    main()
