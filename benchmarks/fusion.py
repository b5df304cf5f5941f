"""Times fused expressions: unmodified NumPy under gpushim, CuPy, and jax.jit, one run, one GPU.

    python benchmarks/fusion.py [--size 1e7] [--output FOLDER] [--libraries gpushim,cupy,jax]
    python benchmarks/fusion.py --libraries gpushim-xp,cupy    # CuPy-style code: xp = gpushim against xp = cupy

Every call's result is computed: it is evaluated while it is alive, and the round is closed by waiting for the device. Each
library has a process of its own. `limit` is the time that reading the inputs and writing the results once takes at the
bandwidth of a device-to-device copy of 1 GiB, measured in the same run. `first` is gpushim's first call of a program with an empty
cache of compiled kernels, its inputs on the device and the device started half a second before; `second` is the one after it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


def black_scholes(xp, s, k, t):
    r, sigma = 0.03, 0.2
    root = sigma * xp.sqrt(t)
    d1 = (xp.log(s / k) + (r + 0.5 * sigma * sigma) * t) / root
    d2 = d1 - root

    def cdf(x):  # Abramowitz and Stegun, formula 26.2.17
        z = xp.abs(x)
        w = 1.0 / (1.0 + 0.2316419 * z)
        poly = w * (0.31938153 + w * (-0.356563782 + w * (1.781477937 + w * (-1.821255978 + w * 1.330274429))))
        tail = 0.3989422804014327 * xp.exp(-0.5 * z * z) * poly
        return xp.where(x > 0, 1.0 - tail, tail)

    discounted = k * xp.exp(-r * t)
    call = s * cdf(d1) - discounted * cdf(d2)
    return call, call - s + discounted


def softmax(xp, x):
    e = xp.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def jacobi(xp, u):
    return 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


def distances(xp, p, q):
    return xp.sqrt(((p[:, None, :] - q[None, :, :]) ** 2).sum(axis=-1))


def mandelbrot(xp, zr, zi, cr, ci):
    for _ in range(4):
        inside = zr * zr + zi * zi < 4.0
        new = zr * zr - zi * zi + cr
        zi = xp.where(inside, 2.0 * zr * zi + ci, zi)
        zr = xp.where(inside, new, zr)
    return zr, zi


def cases(n: int, dtype) -> dict[str, tuple]:
    """Name: (function, inputs, elements moved at least)."""
    rng = np.random.default_rng(1)

    def flat(low=0.5, high=2.0):
        return rng.uniform(low, high, n).astype(dtype)

    side = int(n**0.5)
    matrix = rng.normal(size=(side, side)).astype(dtype)
    grid = rng.normal(size=(8192, 8192)).astype(dtype) if n >= 10**7 else matrix
    points = rng.normal(size=(2, 4096 if n >= 10**7 else 64, 3)).astype(dtype)
    x, y, z = flat(), flat(), flat()
    small = [a - 1.0 for a in (x, y, z, flat())]
    return {
        "black-scholes": (black_scholes, (x, y, z), 5 * n),
        "sqrt(x2+y2+z2)": (lambda xp, x, y, z: xp.sqrt(x * x + y * y + z * z), (x, y, z), 4 * n),
        "sin2+cos2": (lambda xp, x: xp.sin(x) ** 2 + xp.cos(x) ** 2, (x,), 2 * n),
        "(a*b).sum()": (lambda xp, x, y: (x * y).sum(), (x, y), 2 * n),
        "softmax rows": (softmax, (matrix,), 2 * side * side),
        "var": (lambda xp, x: x.var(), (x,), n),
        "jacobi step": (jacobi, (grid,), 2 * grid.size),
        "pairwise distances": (distances, (points[0], points[1]), points.shape[1] ** 2),
        "mandelbrot x4": (mandelbrot, tuple(small), 6 * n),
        "20-op chain 1e5": (chain, (flat()[: 10**5],), 2 * 10**5),
    }


def chain(xp, x):
    y = x
    for i in range(10):
        y = y * 1.01 + float(i)
    return y


def compile_programs(call) -> None:
    """Calls until gpushim has compiled kernels for what `call` does."""
    import gpushim

    for _ in range(4):
        result = call()
        gpushim.synchronize()
        gpushim._shim.wait_for_compiler()
        del result


def median_seconds(call, evaluate, wait, budget=0.4) -> float:
    def one():
        result = call()
        evaluate()
        return result

    for _ in range(3):
        result = one()
        wait(result)
    start = time.perf_counter()
    wait(one())
    estimate = max(time.perf_counter() - start, 1e-6)
    repeats, rounds = max(1, min(300, int(budget / 5 / estimate))), []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats):
            result = one()
        wait(result)
        rounds.append((time.perf_counter() - start) / repeats)
    return statistics.median(rounds)


def measure(library: str, n: int) -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = {}
    ours = np
    if library.startswith("gpushim"):  # the device starts, and loads what programs begin with on a thread of its own
        import gpushim

        if library == "gpushim-xp":
            ours = gpushim
        else:
            gpushim.install(device=os.environ.get("GPUSHIM_DEVICE", "auto"))
        ours.ones(1 << 20).sum()
        time.sleep(0.5)
    for tag, dtype in (("f64", np.float64), ("f32", np.float32)):
        for name, (function, inputs, elements) in cases(n, dtype).items():
            row = {"bytes": elements * np.dtype(dtype).itemsize}
            if library.startswith("gpushim"):
                arrays = [ours.asarray(a) + 0 for a in inputs]
                gpushim.synchronize()
                call, evaluate = (lambda f=function, a=arrays: f(ours, *a)), gpushim._shim.evaluate
                times = []
                for _ in range(3):
                    start = time.perf_counter()
                    result = call()
                    evaluate()
                    gpushim.synchronize()
                    times.append(time.perf_counter() - start)
                    del result
                row["first"], row["second"] = times[0], times[1]
                compile_programs(call)
                before = gpushim._shim.stats()["memory"]
                row["seconds"] = median_seconds(call, evaluate, lambda _: gpushim.synchronize())
                after = gpushim._shim.stats()["memory"]
                row["compiled"] = after["compiled_programs"] - before["compiled_programs"]
                row["programs"] = after["programs"] - before["programs"]
            elif library == "cupy":
                import cupy

                arrays = [cupy.asarray(a) for a in inputs]
                stream = cupy.cuda.get_current_stream()
                row["seconds"] = median_seconds(
                    lambda f=function, a=arrays, xp=cupy: f(xp, *a), lambda: None, lambda _, s=stream: s.synchronize()
                )
            else:
                import jax

                jax.config.update("jax_enable_x64", True)
                import jax.numpy as jnp

                arrays = [jnp.asarray(a) for a in inputs]
                compiled = jax.jit(lambda *a, f=function, xp=jnp: f(xp, *a))
                row["seconds"] = median_seconds(lambda c=compiled, a=arrays: c(*a), lambda: None, jax.block_until_ready)
            results[f"{name} {tag}"] = row
    if library == "cupy":
        import cupy

        a = cupy.zeros(1 << 27)
        b = cupy.empty_like(a)
        stream = cupy.cuda.get_current_stream()
        seconds = median_seconds(lambda: cupy.copyto(b, a), lambda: None, lambda _: stream.synchronize())
        results["copy"] = {"seconds": seconds, "bytes": 2.0 * a.nbytes}
    return results


def table(results: dict[str, dict], out) -> None:
    copy = results["cupy"]["copy"]
    bandwidth = copy["bytes"] / copy["seconds"]
    print(
        f"Copy bandwidth {bandwidth / 1e12:.2f} TB/s. Milliseconds; ratios are the peer's time over gpushim's.",
        file=out,
    )
    for library in ("gpushim", "gpushim-xp"):
        if library in results:
            table_of(library, results, bandwidth, out)


def table_of(library: str, results: dict[str, dict], bandwidth: float, out) -> None:
    print(f"\n| case | {library} | CuPy | ratio | jax.jit | ratio | limit | of limit | first | second |", file=out)
    print("|---|---|---|---|---|---|---|---|---|---|", file=out)
    for name, row in results[library].items():
        mine = row["seconds"]
        cupy = results["cupy"].get(name, {}).get("seconds", float("nan"))
        jax = results.get("jax", {}).get(name, {}).get("seconds", float("nan"))
        limit = row["bytes"] / bandwidth
        print(
            f"| {name} | {mine * 1e3:.4f} | {cupy * 1e3:.4f} | {cupy / mine:.2f} | {jax * 1e3:.4f} | {jax / mine:.2f} "
            f"| {limit * 1e3:.4f} | {mine / limit:.2f} | {row['first'] * 1e3:.2f} | {row['second'] * 1e3:.2f} |",
            file=out,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=1e7)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--libraries", default="gpushim,cupy,jax")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        json.dump(measure(options.measure, int(options.size)), sys.stdout)
        return
    if "cupy" not in options.libraries.split(","):
        parser.error("the copy bandwidth, which all is measured by, comes from cupy")
    results = {}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "GPUSHIM_CACHE_DIR": cache, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        for library in options.libraries.split(","):
            print(f"{library} ...", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, "--measure", library, "--size", str(options.size)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
            if done.returncode == 0:
                results[library] = json.loads(done.stdout)
            elif library != "jax":
                sys.exit(f"benchmarks: {library} failed")
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "fusion.json").write_text(json.dumps(results, indent=1))
    with open(options.output / "fusion.md", "w") as page:
        command = " ".join(["python benchmarks/fusion.py", *sys.argv[1:]])
        print(f"# Fused expressions\n\nMade by `{command}`.\n", file=page)
        table(results, page)
    table(results, sys.stdout)


if __name__ == "__main__":
    main()
