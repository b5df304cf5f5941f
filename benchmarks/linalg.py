"""Times linear algebra and FFTs: unmodified NumPy under gpushim, stock NumPy, CuPy, PyTorch and JAX, one run, one GPU.

    python benchmarks/linalg.py [--only REGEX] [--output FOLDER] [--libraries gpushim,cupy,torch,jax,numpy] [--scale 1]

Inputs are on the device before the clock starts; each library has a process of its own. A time is the median of five rounds
in the steady state, when compilers are done, waiting for the device included. PyTorch is asked for its default drivers.
`ratio` is the best peer's time over gpushim's. `where` says whether gpushim left a call to NumPy.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from fusion import compile_programs

HERE = Path(__file__).resolve().parent


def matrix(rng, *shape, dtype=np.float64):
    return rng.standard_normal(shape).astype(dtype)


def cases(scale: float) -> dict[str, tuple]:
    """Name: (function of the library's namespace and the inputs, inputs)."""
    rng = np.random.default_rng(1)

    def n(size):
        return max(4, int(size * scale))

    def general(size):
        return matrix(rng, n(size), n(size))

    def positive(size):
        a = general(size)
        return a @ a.T / len(a) + np.eye(len(a))

    def symmetric(size):
        a = general(size)
        return a + a.T

    def stack(count, size):
        return matrix(rng, n(count), size, size) + size * np.eye(size)

    line = n(2**24)
    images = matrix(rng, n(4096), n(4096))
    wave = matrix(rng, line) + 1j * matrix(rng, line)
    left, right = matrix(rng, 64, n(128), n(256)), matrix(rng, 64, n(256), n(128))
    return {
        "solve 4096": (lambda xp, a, b: xp.linalg.solve(a, b), (general(4096), matrix(rng, n(4096), 1))),
        "inv 2048": (lambda xp, a: xp.linalg.inv(a), (general(2048),)),
        "det 2048": (lambda xp, a: xp.linalg.det(a), (positive(2048),)),
        "cholesky 4096": (lambda xp, a: xp.linalg.cholesky(a), (positive(4096),)),
        "qr 1024": (lambda xp, a: xp.linalg.qr(a), (general(1024),)),
        "svd 512": (lambda xp, a: xp.linalg.svd(a), (general(512),)),
        "svd 4096x256": (lambda xp, a: xp.linalg.svd(a, full_matrices=False), (matrix(rng, n(4096), n(256)),)),
        "svdvals 1024": (lambda xp, a: singular_values(xp, a), (general(1024),)),
        "eigh 1024": (lambda xp, a: xp.linalg.eigh(a), (symmetric(1024),)),
        "eigvalsh 1024": (lambda xp, a: xp.linalg.eigvalsh(a), (symmetric(1024),)),
        "eig 512": (lambda xp, a: xp.linalg.eig(a), (general(512),)),
        "lstsq 4096x256": (lambda xp, a, b: lstsq(xp, a, b), (matrix(rng, n(4096), n(256)), matrix(rng, n(4096), 1))),
        "pinv 512": (lambda xp, a: xp.linalg.pinv(a), (general(512),)),
        "solve 1e4 x 8x8": (lambda xp, a, b: xp.linalg.solve(a, b), (stack(10**4, 8), matrix(rng, n(10**4), 8, 1))),
        "inv 1e4 x 16x16": (lambda xp, a: xp.linalg.inv(a), (stack(10**4, 16),)),
        "det 1e5 x 4x4": (lambda xp, a: xp.linalg.det(a), (stack(10**5, 4),)),
        "cholesky 1e4 x 16x16": (lambda xp, a: xp.linalg.cholesky(a), (stack(10**4, 16) @ stack(10**4, 16).mT,)),
        "eigh 1e4 x 8x8": (lambda xp, a: xp.linalg.eigh(a), (stack(10**4, 8) + stack(10**4, 8).mT,)),
        "svd 1e4 x 8x8": (lambda xp, a: xp.linalg.svd(a), (stack(10**4, 8),)),
        "fft c128 2^24": (lambda xp, a: xp.fft.fft(a), (wave,)),
        "ifft c128 2^24": (lambda xp, a: xp.fft.ifft(a), (wave,)),
        "rfft f64 2^24": (lambda xp, a: xp.fft.rfft(a), (wave.real.copy(),)),
        "rfft2 f64 4096^2": (lambda xp, a: xp.fft.rfft2(a), (images,)),
        "fft2 c128 4096^2": (lambda xp, a: xp.fft.fft2(a), (images + 0j,)),
        "irfft2 f64 4096^2": (lambda xp, a: xp.fft.irfft2(a), (np.fft.rfft2(images),)),
        "fft rows 4096x4096 c128": (lambda xp, a: xp.fft.fft(a), (images + 0j,)),
        "fft c64 2^24": (lambda xp, a: xp.fft.fft(a), (wave.astype(np.complex64),)),
        "einsum ij,jk->ik 2048": (
            lambda xp, a, b: xp.einsum("ij,jk->ik", a, b),
            (general(2048), general(2048)),
        ),
        "einsum bij,bjk->bik": (lambda xp, a, b: xp.einsum("bij,bjk->bik", a, b), (left, right)),
        "einsum ij,ij->i": (lambda xp, a, b: xp.einsum("ij,ij->i", a, b), (images, images.T.copy())),
        "einsum ijk->ik": (lambda xp, a: xp.einsum("ijk->ik", a), (matrix(rng, 64, n(512), n(512)),)),
        "einsum ii->": (lambda xp, a: xp.einsum("ii->", a), (images,)),
        "tensordot": (lambda xp, a, b: tensordot(xp, a, b), (left, right)),
        "kron 64": (lambda xp, a, b: xp.kron(a, b), (matrix(rng, 64, 64), matrix(rng, 64, 64))),
    }


def singular_values(xp, a):
    return xp.linalg.svdvals(a) if hasattr(xp.linalg, "svdvals") else xp.linalg.svd(a, compute_uv=False)


def lstsq(xp, a, b):
    return xp.linalg.lstsq(a, b) if xp.__name__ in ("torch", "jax.numpy") else xp.linalg.lstsq(a, b, rcond=None)


def tensordot(xp, a, b):
    return xp.tensordot(a, b, ([0, 2], [0, 1]))


def seconds(call, wait, budget=0.5) -> float:
    for _ in range(2):
        result = call()
        wait(result)
    start = time.perf_counter()
    wait(call())
    repeats = max(1, min(200, int(budget / 5 / max(time.perf_counter() - start, 1e-6))))
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats):
            result = call()
            wait(result)
        rounds.append((time.perf_counter() - start) / repeats)
        if sum(rounds) * repeats > 4 * budget:
            break
    return statistics.median(rounds)


def library(name: str):
    """(namespace, from a NumPy array, wait for a result)"""
    if name == "numpy":
        return np, lambda a: a, lambda _: None
    if name == "gpushim":
        import gpushim

        gpushim.install(device=os.environ.get("GPUSHIM_DEVICE", "auto"))

        def wait(_):
            gpushim._shim.evaluate()
            gpushim.synchronize()

        return np, lambda a: a + 0, wait
    if name == "cupy":
        import cupy

        stream = cupy.cuda.get_current_stream()
        return cupy, cupy.asarray, lambda _: stream.synchronize()
    if name == "torch":
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        return torch, lambda a: torch.from_numpy(np.ascontiguousarray(a)).cuda(), lambda _: torch.cuda.synchronize()
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax.numpy, jax.numpy.asarray, jax.block_until_ready


def measure(name: str, only: str, scale: float) -> dict[str, dict]:
    namespace, from_numpy, wait = library(name)
    if name == "gpushim":
        import gpushim
    results = {}
    with gpushim.disabled() if name == "gpushim" else open(os.devnull):
        wanted = {k: v for k, v in cases(scale).items() if re.search(only, k)}
    for case, (function, inputs) in wanted.items():
        try:
            arrays = [from_numpy(a) for a in inputs]

            def call(f=function, a=arrays):
                return f(namespace, *a)

            if name == "gpushim":
                compile_programs(call)
            row = {"seconds": seconds(call, wait)}
            if name == "gpushim":
                functions = gpushim._shim.stats()["functions"]
                before = {f["name"]: f["host_calls"] for f in functions}
                wait(function(namespace, *arrays))
                after = gpushim._shim.stats()["functions"]
                row["fallbacks"] = [f["name"] for f in after if f["host_calls"] > before.get(f["name"], 0)]
            results[case] = row
        except Exception as problem:  # a library may lack a case
            results[case] = {"error": f"{type(problem).__name__}: {problem}"[:200]}
    return results


def table(results: dict[str, dict], out) -> None:
    peers = [p for p in results if p != "gpushim"]
    print("Milliseconds.\n", file=out)
    print(f"| case | gpushim | {' | '.join(peers)} | ratio | where |", file=out)
    print("|---" * (len(peers) + 4) + "|", file=out)

    def text(row):
        return f"{row['seconds'] * 1e3:.3f}" if "seconds" in row else "-"

    for case, row in results["gpushim"].items():
        others = {p: results[p].get(case, {}) for p in peers}
        best = min((r["seconds"] for p, r in others.items() if "seconds" in r and p != "numpy"), default=float("nan"))
        ratio = f"{best / row['seconds']:.2f}" if "seconds" in row else row.get("error", "-")
        where = ", ".join(row.get("fallbacks", [])) or "device"
        cells = " | ".join(text(others[p]) for p in peers)
        print(f"| {case} | {text(row)} | {cells} | {ratio} | {where} |", file=out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--libraries", default="gpushim,cupy,torch,jax,numpy")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        json.dump(measure(options.measure, options.only, options.scale), sys.stdout)
        return
    results = {}
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    for name in options.libraries.split(","):
        print(f"{name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--measure", name, "--only", options.only, "--scale", str(options.scale)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
        if done.returncode == 0:
            results[name] = json.loads(done.stdout)
        elif name == "gpushim":
            sys.exit("benchmarks: gpushim failed")
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "linalg.json").write_text(json.dumps(results, indent=1))
    with open(options.output / "linalg.md", "w") as page:
        print("# Linear algebra and FFTs\n\nMade by `python benchmarks/linalg.py`.\n", file=page)
        table(results, page)
    table(results, sys.stdout)


if __name__ == "__main__":
    main()
