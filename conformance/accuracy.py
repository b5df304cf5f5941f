"""Measures how far every mathematical function is from the exact value, against mpmath; makes docs/accuracy.md.

    python conformance/accuracy.py --device host       # writes results/accuracy-host.json beside this file
    python conformance/accuracy.py --device cuda
    python conformance/accuracy.py --page              # docs/accuracy.md from what was measured

Needs mpmath. The error is |result - exact| in units of the last place (ulp) of the exact value, the unit of the smallest
numbers below the smallest normal one; of complex numbers the larger part's unit counts for both parts. Where the exact value
is a matter of convention or beyond the range (NaN, infinities, signed zeros, overflow) the result must be that of NumPy: the
*special values*. Stock NumPy is measured beside, on the same inputs.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "accuracy.md"
DTYPES = ("float32", "float64", "complex64", "complex128")
REAL = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "cbrt",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "degrees",
    "radians",
    "reciprocal",
    "logaddexp",
    "logaddexp2",
    "arctan2",
    "hypot",
    "power",
]
COMPLEX = [
    *(name for name in REAL[: REAL.index("degrees")] if name != "cbrt"),
    "absolute",
    "angle",
    "reciprocal",
    "square",
    "multiply",
    "divide",
    "power",
]
BINARY = {"logaddexp", "logaddexp2", "arctan2", "hypot", "power", "multiply", "divide"}
#: Of these the exact value leaves every range quickly: only arguments whose result can be finite are measured.
GROWING = {"exp", "exp2", "expm1", "sinh", "cosh", "tanh", "power"}
#: What may be further off than 2 ulp (8 for complex numbers), and why.
NOTES = {
    ("logaddexp", "f"): "cancels where the result is near zero, as NumPy's does",
    ("logaddexp2", "f"): "cancels where the result is near zero, as NumPy's does",
    ("power", "c"): "exp(b log a): the logarithm's rounding is multiplied by abs(b log a), as in NumPy's",
    (
        "log1p",
        "c",
    ): "CUDA: as hypot; NumPy: near -1 and where abs(1+z) is near 1; NumPy rounds 1 + z first and loses small z altogether",
    ("expm1", "c"): "where exp(x) cos(y) is near 1, as NumPy's",
    ("exp2", "c"): "turns by y ln 2, rounded once: grows with abs(y), as NumPy's",
    ("tan", "c"): "near its poles",
    ("divide", "c"): "NumPy's bits: its algorithm is lost where a part is near the ends of the range",
    ("reciprocal", "c"): "NumPy's bits: its algorithm is lost where a part is near the ends of the range",
    ("absolute", "c"): "CUDA's hypot overflowed next to the largest number; repaired since this was measured",
    ("hypot", "f"): "CUDA's hypot overflowed next to the largest number; repaired since this was measured",
    ("log", "c"): "where abs(z) is near 1",
    ("log2", "c"): "where abs(z) is near 1",
    ("log10", "c"): "where abs(z) is near 1",
}


def magnitudes(part: np.dtype, count: int, rng) -> np.ndarray:
    """Numbers of every size: half of them near 1, the rest over the whole range, subnormals included."""
    info = np.finfo(part)
    usual = rng.normal(size=count) * 10.0 ** rng.uniform(-3, 3, count)
    exponents = rng.uniform(info.minexp - info.nmant, info.maxexp - 0.01, count)
    wide = np.exp2(exponents) * rng.choice([-1.0, 1.0], count)
    return np.where(rng.random(count) < 0.6, usual, wide).astype(part)


def edges(part: np.dtype) -> np.ndarray:
    """Where functions turn, rounding is hard, or ranges end."""
    info = np.finfo(part)
    few = [
        0.5,
        1,
        2,
        3,
        10,
        1 / 3,
        0.1,
        math.pi / 4,
        math.pi / 2,
        math.pi,
        2 * math.pi,
        1e4,
        1e5,
        2.0**20,
        88.5,
        0.6931,
    ]
    few += (
        [math.log(float(info.max)) * 0.9999, math.log(float(info.tiny)), 1e22] if part.itemsize > 4 else [87.3, 103.9]
    )
    few += [
        float(info.max),
        float(info.max) / 2,
        float(info.tiny),
        float(info.tiny) / 8,
        float(info.smallest_subnormal),
    ]
    values = np.array(few, part)
    values = np.concatenate([values, np.nextafter(values, part.type(np.inf)), np.nextafter(values, part.type(0))])
    return np.concatenate([values, -values])


def inputs_of(name: str, dtype: np.dtype, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(len(name) * 100 + dtype.num)
    part = np.dtype(dtype.char.lower())

    def numbers(n: int) -> np.ndarray:
        values = np.concatenate([magnitudes(part, n, rng), edges(part)])
        if name in ("arcsin", "arccos", "arctanh"):
            values = np.concatenate([values, rng.uniform(-1, 1, n).astype(part)])
        if name in ("log", "log2", "log10", "arccosh", "log1p", "power"):
            values = np.concatenate([values, (1 + rng.normal(size=n) * 10.0 ** rng.uniform(-8, 0, n)).astype(part)])
        return rng.permutation(values)

    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1], part)
    first = numbers(count)
    if dtype.kind == "c":
        first = (first + 1j * rng.permutation(first)).astype(dtype)
        grid = np.empty((special.size, special.size), dtype)
        grid.real, grid.imag = special[:, None], special[None, :]
        special = grid.ravel()
    if name not in BINARY:
        return [np.concatenate([first, special])]
    second = rng.permutation(first)
    if name == "power":
        small = rng.normal(size=second.size) * 10.0 ** rng.uniform(-2, 1.3, second.size)
        second = np.where(rng.random(second.size) < 0.8, small, second).astype(dtype)
        first = np.where(rng.random(first.size) < 0.8, np.abs(first), first).astype(dtype)
    if name.startswith("logaddexp"):  # near each other, or one of them does not count
        second = np.where(rng.random(second.size) < 0.7, first + rng.normal(size=first.size) * 3, second).astype(dtype)
    a, b = np.meshgrid(special, special)
    return [np.concatenate([first, a.ravel()]), np.concatenate([second, b.ravel()])]


def exact(name: str, *x):
    """The function in mpmath; None where its value is not to be measured."""
    import mpmath as mp

    if name in GROWING:
        size = x[0].real if isinstance(x[0], mp.mpc) else x[0]
        size = abs(x[1] * mp.log(x[0])) if name == "power" and x[0] != 0 else abs(size)
        if size > 1100:
            return None
    if name in ("sin", "cos", "tan") and isinstance(x[0], mp.mpc) and abs(x[0].imag) > 1100:
        return None
    if name in ("arctan", "arctanh") and isinstance(x[0], mp.mpc) and abs(x[0]) < 1e-25:
        # mpmath's logarithms cancel here.
        return x[0] + x[0] ** 3 / (3 if name == "arctanh" else -3)
    match name:
        case "exp2":
            return mp.power(2, *x)
        case "log2":
            return mp.log(*x) / mp.log(2)
        case "cbrt":
            return mp.sign(x[0]) * mp.cbrt(abs(x[0]))
        case "arcsin" | "arccos" | "arctan" | "arcsinh" | "arccosh" | "arctanh":
            return getattr(mp, name.replace("arc", "a"))(*x)
        case "arctan2":
            return mp.atan2(*x)
        case "logaddexp":
            return max(x) + mp.log1p(mp.exp(-abs(x[0] - x[1]))) if abs(x[0] - x[1]) < 1100 else max(x)
        case "logaddexp2":
            return max(x) + mp.log1p(mp.power(2, -abs(x[0] - x[1]))) / mp.log(2) if abs(x[0] - x[1]) < 1100 else max(x)
        case "absolute":
            return abs(x[0])
        case "angle":
            return mp.arg(*x)
        case "reciprocal":
            return 1 / x[0]
        case "square":
            return x[0] * x[0]
        case "multiply":
            return x[0] * x[1]
        case "divide":
            return x[0] / x[1]
        case _:
            return getattr(mp, name)(*x)


def error_of(value, truth, part: np.dtype) -> float:
    """Distance in ulp; infinite where one of them overflows and the other does not."""
    import mpmath as mp

    info = np.finfo(part)
    truth_parts = [truth.real, truth.imag] if isinstance(truth, mp.mpc) else [truth]
    value_parts = [value.real, value.imag] if np.iscomplexobj(value) else [value]
    if len(truth_parts) < len(value_parts):
        truth_parts.append(mp.mpf(0))
    size = max(abs(p) for p in truth_parts)
    limit = mp.ldexp(1, info.maxexp) * (1 - mp.ldexp(1, -info.nmant - 2))
    if size >= limit:  # rounds to infinity
        return 0.0 if any(np.isinf(p) or abs(mp.mpf(float(p))) == float(info.max) for p in value_parts) else math.inf
    if not all(np.isfinite(p) for p in value_parts):
        return math.inf
    exponent = info.minexp if size == 0 else max(int(mp.floor(mp.log(size, 2))), info.minexp)
    unit = mp.ldexp(1, exponent - info.nmant)
    return float(max(abs(mp.mpf(float(v)) - t) for v, t in zip(value_parts, truth_parts, strict=True)) / unit)


def measure(job: tuple) -> dict:
    """One function and dtype: largest errors of two results on the same inputs."""
    import mpmath as mp

    name, dtype, inputs, ours, theirs = job
    dtype = np.dtype(dtype)
    part = np.dtype(dtype.char.lower())
    mp.mp.prec = 200
    worst, worst_at, worst_numpy, total, measured, special = 0.0, "", 0.0, 0.0, 0, []
    for i in range(ours.size):
        x = [a[i] for a in inputs]
        pieces = [p for v in x for p in ((v.real, v.imag) if dtype.kind == "c" else (v,))]
        truth = None
        usual = all(np.isfinite(p) and p != 0 for p in pieces) and not np.isnan(theirs[i])
        if usual:
            numbers = [mp.mpc(float(v.real), float(v.imag)) if dtype.kind == "c" else mp.mpf(float(v)) for v in x]
            try:
                truth = exact(name, *numbers)
            except (ValueError, ZeroDivisionError, OverflowError, mp.NoConvergence):
                truth = None
            if dtype.kind == "f" and isinstance(truth, mp.mpc):
                truth = truth.real if truth.imag == 0 else None
        if truth is None or mp.isnan(truth) or mp.isinf(truth):
            # Far out, complex results are whatever the angle's rounding makes of them.
            noise = dtype.kind == "c" and all(np.isfinite(p) for p in pieces) and any(p != 0 for p in pieces)
            if not noise and not _same(ours[i], theirs[i]):
                special.append(f"{name}{tuple(x)}: {ours[i]!r}, NumPy {theirs[i]!r}")
            continue
        error, numpy_error = error_of(ours[i], truth, part), error_of(theirs[i], truth, part)
        measured += 1
        total += min(error, 1e6)
        worst_numpy = max(worst_numpy, numpy_error)
        if error > worst:
            worst, worst_at = error, repr(tuple(v.item() for v in x))
    return {
        "function": name,
        "dtype": dtype.name,
        "values": measured,
        "ulp": worst,
        "mean": total / max(measured, 1),
        "numpy": worst_numpy,
        "at": worst_at,
        "special": special[:5],
        "special_count": len(special),
    }


def _same(a, b) -> bool:
    """Equal, any NaN with any NaN; finite values of what was not measured may differ by rounding."""
    if np.iscomplexobj(a):
        if np.isnan(b):  # C leaves the sign of the other part open
            return _same(abs(a.real), abs(b.real)) and _same(abs(a.imag), abs(b.imag))
        return _same(a.real, b.real) and _same(a.imag, b.imag)
    if np.isnan(a) or np.isnan(b):
        return bool(np.isnan(a) and np.isnan(b))
    if np.isinf(a) or np.isinf(b) or a == 0 or b == 0:
        return bool(a == b and np.signbit(a) == np.signbit(b)) or abs(float(a) - float(b)) < np.finfo(a.dtype).tiny
    return bool(abs(float(a) / float(b) - 1) < 1e3 * np.finfo(a.dtype).eps)


def run(device: str, count: int, jobs: int, only: list[str]) -> dict:
    # The workers are forked before there is a device.
    with multiprocessing.get_context("fork").Pool(jobs) as pool, np.errstate(all="ignore"):
        import gpushim

        work = []
        for dtype in map(np.dtype, DTYPES):
            for name in REAL if dtype.kind == "f" else COMPLEX:
                if not only or name in only:
                    inputs = inputs_of(name, dtype, count // 3 if dtype.kind == "c" else count)
                    work.append((name, dtype, inputs, (np.angle if name == "angle" else getattr(np, name))(*inputs)))
        if not gpushim.install(device=device, min_bytes=0):
            raise SystemExit(1)
        tasks = []
        for name, dtype, inputs, theirs in work:
            on_device = [a + dtype.type(0) for a in inputs]  # keeps -0.0 out: put it back
            for a, original in zip(on_device, inputs, strict=True):
                a[...] = original
            function = np.angle if name == "angle" else getattr(np, name)
            calls = gpushim.report().data["summary"]["device_calls"]
            ours = function(*on_device)
            gpushim.synchronize()
            if gpushim.report().data["summary"]["device_calls"] == calls:
                raise SystemExit(f"{name} of {dtype} did not run on the device")
            with gpushim.disabled():
                tasks.append((name, dtype.name, inputs, np.array(ours), theirs))
        info = gpushim.system_info()
        description = "host device" if info["device"] == "host" else info["device_description"]
        gpushim.uninstall()
        rows = pool.map(measure, tasks, chunksize=1)
    return {
        "device": description,
        "jit": {"0": "off", "": "default"}.get(os.environ.get("GPUSHIM_JIT", ""), "default")
        if os.environ.get("GPUSHIM_JIT_ALWAYS", "0") == "0"
        else "always",
        "numpy": np.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "rows": rows,
    }


def measured(folder: Path) -> dict[str, dict]:
    """What was written there, by label; the host first."""
    found = sorted(folder.glob("accuracy-*.json"), key=lambda p: (p.stem != "accuracy-host", p.stem))
    return {path.stem.removeprefix("accuracy-"): json.loads(path.read_text(encoding="utf-8")) for path in found}


def page(results: dict[str, dict]) -> str:
    lines = [
        "# Accuracy",
        "",
        "The largest error found of every mathematical function, in units in the last place (ulp) of the exact value, which is",
        "computed with mpmath. `conformance/accuracy.py` measured it and made this page. Arguments are of every size, subnormals and",
        "the ends of the range included, and where functions turn. 0.5 is correctly rounded. Of complex numbers the larger part's ulp",
        "counts for both parts. NaNs, infinities, signed zeros, overflow: NumPy's results; the last column counts exceptions.",
        "",
        "Integers, bools, comparisons, casts and `+ - * / sqrt` of real numbers have NumPy's bits and are not listed.",
        "",
        *(
            f"- **{label}**: {data['device']}, NumPy {data['numpy']}, {data['date']}"
            + (", every program compiled (`GPUSHIM_JIT_ALWAYS=1`)" if data["jit"] == "always" else "")
            for label, data in results.items()
        ),
        "- **NumPy**: stock NumPy on the machine of the first of these",
        "",
    ]
    labels = list(results)
    for dtype in DTYPES:
        rows = {
            label: {row["function"]: row for row in data["rows"] if row["dtype"] == dtype}
            for label, data in results.items()
        }
        kind = np.dtype(dtype).kind
        lines += [
            f"## {dtype}",
            "",
            f"| function | {' | '.join(labels)} | NumPy | values | special values that differ | note |",
            "|---|" + "---:|" * (len(labels) + 3) + "---|",
        ]
        for name in REAL if kind == "f" else COMPLEX:
            mine = [rows[label].get(name) for label in labels]
            if not all(mine):
                continue
            worst = max(row["ulp"] for row in mine)
            note = NOTES.get((name, kind), "") if worst > (2 if kind == "f" else 8) else ""
            cells = [_ulp(row["ulp"]) for row in mine]
            special = max(row["special_count"] for row in mine)
            lines.append(
                f"| `{name}` | {' | '.join(cells)} | {_ulp(mine[0]['numpy'])} | {mine[0]['values']} | {special or ''} | {note} |"
            )
        lines.append("")
    return "\n".join(lines)


def _ulp(value: float) -> str:
    return "inf" if math.isinf(value) else f"{value:.2f}" if value < 100 else f"{value:.1e}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("host", "cuda"))
    parser.add_argument("--label", help="name of the column and file (default: the device)")
    parser.add_argument("--values", type=int, default=3000, metavar="N", help="random values a function and dtype")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="FOLDER")
    parser.add_argument("--page", action="store_true", help="write docs/accuracy.md")
    parser.add_argument("--only", default="", metavar="NAMES", help="functions, with commas between")
    options = parser.parse_args()
    if options.device:
        data = run(options.device, options.values, options.jobs, options.only.split(",") if options.only else [])
        for row in data["rows"]:
            if row["ulp"] > (2 if "float" in row["dtype"] else 8) or row["special_count"]:
                print(
                    row["function"],
                    row["dtype"],
                    _ulp(row["ulp"]),
                    "NumPy",
                    _ulp(row["numpy"]),
                    row["at"],
                    row["special"][:2],
                )
        if not options.only:
            options.results.mkdir(parents=True, exist_ok=True)
            path = options.results / f"accuracy-{options.label or options.device}.json"
            path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    if options.page:
        PAGE.write_text(page(measured(options.results)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
