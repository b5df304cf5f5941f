"""Measures one library in this process and prints JSON: seconds by case. benchmarks/run.py starts it once a library.

python benchmarks/measure.py numpy|gpushim|gpushim-xp|cupy [compute|copies|overhead] [--device cuda|host] [--largest N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import timeit
from collections.abc import Callable

import numpy as np

DTYPES = {"f64": np.float64, "f32": np.float32}
SIZES = (10**6, 10**8)
#: Seconds of work before the steady state: compilers in the background are done then, and the clocks up.
WARM_UP = 0.3


class Library:
    """What the cases need to know of a library: its arrays, its functions, and how to wait for it."""

    def __init__(self, name: str, device: str, profile: bool = False) -> None:
        self.name = name
        self.xp = np
        self.synchronize: Callable[[], None] = lambda: None
        #: Computes what is pending, without waiting: results that die unread would never be computed.
        self.evaluate: Callable[[], None] = lambda: None
        if name == "gpushim":
            import gpushim

            if not gpushim.install(device=device, profile=profile):
                sys.exit("gpushim has no device")
            self.synchronize = gpushim.synchronize
            self.evaluate = gpushim._shim.evaluate
        elif name == "gpushim-xp":  # the namespace, as CuPy is used; not installed
            os.environ["GPUSHIM_DEVICE"] = device
            import gpushim

            self.xp = gpushim
            self.synchronize = gpushim.synchronize
            self.evaluate = gpushim._shim.evaluate
        elif name == "cupy":
            import cupy

            self.xp = cupy
            self.synchronize = cupy.cuda.get_current_stream().synchronize


def seconds(library: Library, work: Callable[[], object], budget: float = 1.0) -> dict[str, float]:
    """The first call's time, and the median of five rounds in the steady state, all with waiting for the device."""
    timings = []
    begin = time.perf_counter()
    while len(timings) < 2 or time.perf_counter() - begin < WARM_UP:
        start = time.perf_counter()
        result = work()
        library.evaluate()
        library.synchronize()
        timings.append(time.perf_counter() - start)
    first, estimate = timings[0], timings[-1]
    repeats = max(1, min(500, int(budget / 5 / max(estimate, 1e-6))))
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(repeats):
            result = work()
            library.evaluate()
        library.synchronize()
        rounds.append((time.perf_counter() - start) / repeats)
        if sum(rounds) * repeats > 3 * budget:
            break
    del result
    return {"seconds": statistics.median(rounds), "first": first}


def compute(library: Library, largest: int) -> dict[str, dict[str, float]]:
    xp, results = library.xp, {}
    for tag, dtype in DTYPES.items():
        for size in SIZES:
            if size > largest:
                continue
            side = round(size**0.5)
            random = np.random.default_rng(0).random(size, dtype=dtype)
            a, b = xp.array(random), xp.array(random[::-1])
            square = a.reshape(side, side)
            cases = {
                "add": lambda a=a, b=b: a + b,
                "exp": lambda a=a: xp.exp(a),
                "sum": lambda a=a: a.sum(),
                "sum to float": lambda a=a: float(a.sum()),  # CuPy waits as well: NumPy's sum is a value
                "sum axis 0": lambda s=square: s.sum(axis=0),
                "matmul": lambda s=square: s @ s,
            }
            for name, work in cases.items():
                results[f"{name} {tag} {size:.0e}".replace("e+0", "e")] = seconds(library, work)
            if library.name == "cupy":
                del a, b, square, cases, work
                xp.get_default_memory_pool().free_all_blocks()
    return results


def copies(library: Library, largest: int) -> dict[str, dict[str, float]]:
    """Bytes a second each way in the steady state, for an array of 1 GiB that host and device use in turn."""
    n = min(largest, 1 << 27)
    times: dict[str, list[float]] = {"to the device": [], "back": []}
    if library.name == "cupy":
        host, device = np.ones(n), library.xp.ones(n)
        moves = {"to the device": lambda: device.set(host), "back": lambda: device.get(out=host)}
        for _ in range(12):
            for way, move in moves.items():
                library.synchronize()
                start = time.perf_counter()
                move()
                library.synchronize()
                times[way].append(time.perf_counter() - start)
    else:
        a = np.ones(n)
        for _ in range(12):
            start = time.perf_counter()
            a.max()  # reads the whole array once: about a hundredth of the copy's time
            library.synchronize()
            times["to the device"].append(time.perf_counter() - start)
            np.add(a, 1, out=a)
            library.synchronize()
            start = time.perf_counter()
            _ = a.ctypes.data  # a pointer that leaves: the array comes home, to be written by anybody
            times["back"].append(time.perf_counter() - start)
    # The first rounds pin and populate memory.
    return {way: {"bytes_per_second": 8 * n / statistics.median(measured[4:])} for way, measured in times.items()}


def overhead(library: Library, largest: int) -> dict[str, dict[str, float]]:
    """Seconds a call: of ufuncs on 10 elements, which stay in NumPy, and until a big call has been taken over."""
    small = np.arange(10.0)
    calls = {
        "np.add, 10 elements": lambda: np.add(small, small),
        "a + a, 10 elements": lambda: small + small,
        "np.sin, 10 elements": lambda: np.sin(small),
        "a.sum(), 10 elements": lambda: small.sum(),
    }
    results = {}
    for name, call in calls.items():
        number = 100_000
        results[name] = {"seconds": min(timeit.repeat(call, number=number, repeat=9)) / number}
    return results


def recording(library: Library, largest: int) -> dict[str, dict[str, float]]:
    """Seconds a call np.add(a, b): until it is recorded, the ndarray that it returns and its end included (median over a
    million calls, in rounds of 200), and what its evaluation, without waiting, adds."""
    a, b = np.ones(1 << 16) + 0, np.ones(1 << 16) + 0
    library.synchronize()

    def rounds(call: Callable[..., object], count: int, *arguments: np.ndarray) -> float:
        times = []
        for _ in range(count):
            start = time.perf_counter()
            for _ in range(200):
                call(*arguments)
            times.append((time.perf_counter() - start) / 200)
        return statistics.median(times)

    def evaluated() -> None:
        result = np.add(a, b)  # noqa: F841 alive while it is evaluated
        library.evaluate()

    record = rounds(np.add, 5000, a, b)
    whole = rounds(evaluated, 200)
    library.synchronize()
    return {"record": {"seconds": record}, "evaluation": {"seconds": whole - record}}


PARTS = {"compute": compute, "copies": copies, "overhead": overhead, "recording": recording}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=("numpy", "gpushim", "gpushim-xp", "cupy"))
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--largest", type=float, default=1e8)
    options = parser.parse_args()
    library = Library(options.library, options.device, profile=options.part == "recording")
    print(json.dumps(PARTS[options.part](library, int(options.largest))))


if __name__ == "__main__":
    main()
