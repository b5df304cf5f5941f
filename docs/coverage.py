"""Makes docs/coverage.md: what gpushim does with every public function of numpy, numpy.linalg, numpy.fft and numpy.random.

    python docs/coverage.py [--check] [--only NAME]

Each function is called on sample arrays of every dtype, on the host device, and gpushim's own counters tell what ran where. A
function that is missing from SAMPLES is called as f(x), f(x, y) or f(m). --check fails when the page does not list NumPy's
functions or the routes that this build has; it calls nothing.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import warnings
from collections import Counter
from pathlib import Path

import gpushim
import numpy as np

PAGE = Path(__file__).resolve().parent / "coverage.md"
SIZE, SIDE, LEAST = 5040, 72, 4096
GROUPS = {
    "bool": ["?"],
    "integers": list("bBhHiIlL"),
    "float16": ["e"],
    "float32, float64": ["f", "d"],
    "complex": ["F", "D"],
}

#: Functions about dtypes, text, files, printing and settings: no numeric work.
ASIDE = {
        "array2string", "array_repr", "array_str", "base_repr", "binary_repr", "broadcast_shapes", "busday_count",
    "busday_offset", "can_cast", "common_type", "datetime_as_string", "datetime_data", "einsum_path",
    "format_float_positional", "format_float_scientific", "from_dlpack", "frombuffer", "fromfile", "fromiter",
    "fromregex", "fromstring", "frompyfunc", "genfromtxt", "get_include", "get_printoptions", "getbufsize", "geterr",
    "geterrcall", "info", "is_busday", "iscomplexobj", "isdtype", "isfortran", "isnat", "isrealobj", "isscalar",
    "issubdtype", "iterable", "load", "loadtxt", "may_share_memory", "min_scalar_type", "mintypecode", "ndim",
    "nested_iters", "printoptions", "promote_types", "result_type", "save", "savetxt", "savez", "savez_compressed",
    "set_printoptions", "setbufsize", "seterr", "seterrcall", "shape", "shares_memory", "show_config", "show_runtime",
    "size", "test", "typename", "asmatrix", "bmat", "bytes", "default_rng", "get_bit_generator", "get_state", "seed",
    "set_bit_generator", "set_state", "array_split",
}  # fmt: skip

#: Counters that belong to a function of another name.
OWN = {
    "abs": ["absolute"], "max": ["maximum.reduce"], "amax": ["maximum.reduce"], "min": ["minimum.reduce"], "amin": ["minimum.reduce"],
    "sum": ["add.reduce"], "prod": ["multiply.reduce"], "any": ["logical_or.reduce"], "all": ["logical_and.reduce"],
    "cumsum": ["add.accumulate"], "cumprod": ["multiply.accumulate"], "cumulative_sum": ["add.accumulate"],
    "cumulative_prod": ["multiply.accumulate"], "copy": ["array"], "concat": ["concatenate"], "unique_values": ["unique"],
    "interp": ["interp", "interp_complex"], "zeros": ["zeros"], "asarray": ["array"], "asanyarray": ["array"], "full": ["copyto"],
    "ones": ["copyto"], "astype": ["ndarray.astype"], "digitize": ["ndarray.searchsorted"], "einsum": ["c_einsum", "einsum"],
    "fix": ["trunc"], "conj": ["conjugate"], "random_sample": ["random"], "randint": ["integers"],
    "fill_diagonal": ["flatiter.__setitem__"], "take_along_axis": ["ndarray.__getitem__"], "put_along_axis": ["ndarray.__setitem__"],
}  # fmt: skip

#: Counters of calls that move or view data; they alone make no function a composed one.
MOVES = {"ndarray.__getitem__", "ndarray.__setitem__", "array", "empty_like", "ndarray.item", "copyto"}

LABELS = {"mixed": "partly CPU"}

NOTES = {
    "sort": "`order=`; descending complex", "argsort": "`order=`; descending complex", "lexsort": "more than 8 keys",
    "unique": "complex, `equal_nan=False`: NumPy's own table", "bincount": "lists",
    "histogram": "`weights=`, bool, float16, complex: composed of NumPy's code", "searchsorted": "lists as the table",
    "interp": "scalars", "argmax": "`out=`; `axis=None` of a strided array", "argmin": "`out=`; `axis=None` of a strided array",
    "where": "one argument", "unravel_index": "indices not in C order, lists", "fill_diagonal": "an array of values", "concatenate": "`out=`, `dtype=`", "partition": "rows, more than 5 positions: sorts", "argpartition": "sorts",
    "histogram2d": "bin numbers", "histogramdd": "bin numbers",
}  # fmt: skip


def samples(dtype: str) -> dict:
    rng = np.random.default_rng(0)
    x = rng.integers(1, 7, SIZE).astype(dtype)
    if x.dtype.kind in "fc":
        x = x + np.array(0.25, dtype)
    m = rng.integers(0, 3, (SIDE, SIDE)).astype(dtype) + (np.eye(SIDE) * 40).astype(dtype)
    i = rng.integers(0, SIZE, SIZE)
    real = x.real.astype("d")
    calls = {
        "append": lambda: np.append(x, x), "apply_along_axis": lambda: np.apply_along_axis(np.sum, 1, m),
        "apply_over_axes": lambda: np.apply_over_axes(np.sum, m, [0]), "arange": lambda: np.arange(SIZE),
        "argpartition": lambda: np.argpartition(x, 9), "asarray": lambda: np.asarray(m.T, order="C"), "array_equal": lambda: np.array_equal(x, x),
        "asanyarray": lambda: np.asanyarray(m.T, order="C"), "ascontiguousarray": lambda: np.ascontiguousarray(m.T), "asfortranarray": lambda: np.asfortranarray(m),
        "astype": lambda: np.astype(x, "F"), "atleast_1d": lambda: np.atleast_1d(x), "bartlett": lambda: np.bartlett(SIZE), "blackman": lambda: np.blackman(SIZE),
        "bincount": lambda: np.bincount(x), "block": lambda: np.block([[m, m], [m, m]]), "broadcast_arrays": lambda: np.broadcast_arrays(x, 1),
        "broadcast_to": lambda: np.broadcast_to(x, (2, SIZE)), "choose": lambda: np.choose(i % 2, [x, x]), "clip": lambda: np.clip(x, 2, 5),
        "compress": lambda: np.compress(i > 9, x), "concat": lambda: np.concat([x, x]), "concatenate": lambda: np.concatenate([x, x]),
        "column_stack": lambda: np.column_stack([x, x]), "convolve": lambda: np.convolve(x, x[:9]), "correlate": lambda: np.correlate(x, x[:9]),
        "copyto": lambda: np.copyto(x, x[::-1].copy()), "cov": lambda: np.cov(m), "cross": lambda: np.cross(x.reshape(-1, 3), x.reshape(-1, 3)), "delete": lambda: np.delete(x, 3),
        "diag_indices": lambda: np.diag_indices(SIZE), "diag_indices_from": lambda: np.diag_indices_from(m), "digitize": lambda: np.digitize(x, np.arange(9.0)), "dsplit": lambda: np.dsplit(x.reshape(-1, 2, 2), 2),
        "dstack": lambda: np.dstack([x, x]), "einsum": lambda: np.einsum("ij,jk->ik", m, m), "empty": lambda: np.empty(SIZE, dtype), "empty_like": lambda: np.empty_like(x), "expand_dims": lambda: np.expand_dims(x, 0),
        "extract": lambda: np.extract(i > 9, x), "eye": lambda: np.eye(SIDE, dtype=dtype), "fill_diagonal": lambda: np.fill_diagonal(m, 1), "full": lambda: np.full(SIZE, 3, dtype), "full_like": lambda: np.full_like(x, 3),
        "fromfunction": lambda: np.fromfunction(lambda a, b: a + b, (SIDE, SIDE)), "geomspace": lambda: np.geomspace(1, 9, SIZE), "hamming": lambda: np.hamming(SIZE), "hanning": lambda: np.hanning(SIZE),
        "histogram": lambda: np.histogram(x, 9), "histogram2d": lambda: np.histogram2d(x, x, 4), "histogram_bin_edges": lambda: np.histogram_bin_edges(x, 9), "histogramdd": lambda: np.histogramdd(x.reshape(-1, 2), 3),
        "hsplit": lambda: np.hsplit(m, 2), "hstack": lambda: np.hstack([x, x]), "identity": lambda: np.identity(SIDE, dtype), "indices": lambda: np.indices((SIDE, SIDE)), "insert": lambda: np.insert(x, 3, 1),
        "interp": lambda: np.interp(real, np.arange(9.0), x[:9]), "ix_": lambda: np.ix_(x > 3, x > 3), "kaiser": lambda: np.kaiser(SIZE, 3.0), "kron": lambda: np.kron(m[:9, :9], m[:9, :9]), "ldexp": lambda: np.ldexp(x, i % 3),
        "lexsort": lambda: np.lexsort((x, x)), "linspace": lambda: np.linspace(0, 1, SIZE), "logspace": lambda: np.logspace(0, 1, SIZE), "mask_indices": lambda: np.mask_indices(SIDE, np.triu),
        "matrix_transpose": lambda: np.matrix_transpose(m), "matvec": lambda: np.matvec(m, m[0]), "meshgrid": lambda: np.meshgrid(x[:70], x[:70]), "moveaxis": lambda: np.moveaxis(m, 0, 1),
        "nanpercentile": lambda: np.nanpercentile(x, 30), "nanquantile": lambda: np.nanquantile(x, 0.3), "ones": lambda: np.ones(SIZE, dtype), "packbits": lambda: np.packbits(x), "pad": lambda: np.pad(x, 2),
        "partition": lambda: np.partition(x, 9), "percentile": lambda: np.percentile(x, 30), "permute_dims": lambda: np.permute_dims(m), "piecewise": lambda: np.piecewise(x, [i > 9], [1, 2]), "place": lambda: np.place(x, i > 9, [1, 2]),
        "poly": lambda: np.poly(x[:5]), "polyadd": lambda: np.polyadd(x, x), "polyder": lambda: np.polyder(x), "polydiv": lambda: np.polydiv(x, x[:9]), "polyfit": lambda: np.polyfit(np.arange(SIZE) / SIZE, x, 3), "polyint": lambda: np.polyint(x),
        "polymul": lambda: np.polymul(x, x[:9]), "polyval": lambda: np.polyval(x[:4], x), "power": lambda: np.power(x, 2), "pow": lambda: np.pow(x, 2), "put": lambda: np.put(x, i, x), "put_along_axis": lambda: np.put_along_axis(x, i, x, 0), "putmask": lambda: np.putmask(x, i > 9, x),
        "quantile": lambda: np.quantile(x, 0.3), "ravel": lambda: np.ravel(m.T), "ravel_multi_index": lambda: np.ravel_multi_index((i % 7, i % 5), (7, 5)), "repeat": lambda: np.repeat(x, 2), "require": lambda: np.require(m.T, requirements="C"),
        "reshape": lambda: np.reshape(x, (2, -1)), "resize": lambda: np.resize(x, (SIZE * 2,)), "roll": lambda: np.roll(x, 2), "rollaxis": lambda: np.rollaxis(m, 1), "roots": lambda: np.roots(x[:9]), "round": lambda: np.round(x, 1), "around": lambda: np.around(x, 1),
        "searchsorted": lambda: np.searchsorted(np.arange(9.0), x), "select": lambda: np.select([i > 9], [x], x), "split": lambda: np.split(x, 2), "squeeze": lambda: np.squeeze(x[None]), "stack": lambda: np.stack([x, x]), "swapaxes": lambda: np.swapaxes(m, 0, 1),
        "take": lambda: np.take(x, i), "take_along_axis": lambda: np.take_along_axis(x, i, 0), "tensordot": lambda: np.tensordot(m, m, 1), "tile": lambda: np.tile(x, 2), "tri": lambda: np.tri(SIDE), "tril": lambda: np.tril(m), "triu": lambda: np.triu(m), "transpose": lambda: np.transpose(m),
        "tril_indices": lambda: np.tril_indices(SIDE), "triu_indices": lambda: np.triu_indices(SIDE), "tril_indices_from": lambda: np.tril_indices_from(m), "triu_indices_from": lambda: np.triu_indices_from(m), "trim_zeros": lambda: np.trim_zeros(x), "unpackbits": lambda: np.unpackbits(x),
        "unravel_index": lambda: np.unravel_index(i, (SIZE, 2)), "unstack": lambda: np.unstack(m), "vander": lambda: np.vander(x, 3), "vecmat": lambda: np.vecmat(m[0], m), "vsplit": lambda: np.vsplit(m, 2), "vstack": lambda: np.vstack([x, x]), "where": lambda: np.where(i > 9, x, x),
        "zeros": lambda: np.zeros(SIZE, dtype), "trace": lambda: np.trace(m), "diagonal": lambda: np.diagonal(m), "diag": lambda: np.diag(m[0]), "diagflat": lambda: np.diagflat(m[0]), "fliplr": lambda: np.fliplr(m), "flipud": lambda: np.flipud(m), "rot90": lambda: np.rot90(m),
        "matmul": lambda: m @ m, "outer": lambda: np.outer(x[:90], x[:90]), "count_nonzero": lambda: np.count_nonzero(x), "corrcoef": lambda: np.corrcoef(m), "gradient": lambda: np.gradient(x), "vecdot": lambda: np.vecdot(m, m),
        "linalg.cross": lambda: np.linalg.cross(x.reshape(-1, 3), x.reshape(-1, 3)), "linalg.lstsq": lambda: np.linalg.lstsq(m, m[0]), "linalg.matmul": lambda: np.linalg.matmul(m, m), "linalg.matrix_power": lambda: np.linalg.matrix_power(m, 3),
        "linalg.multi_dot": lambda: np.linalg.multi_dot([m, m, m]), "linalg.outer": lambda: np.linalg.outer(x[:90], x[:90]), "linalg.solve": lambda: np.linalg.solve(m, m[0]), "linalg.tensordot": lambda: np.linalg.tensordot(m, m, axes=1), "linalg.vecdot": lambda: np.linalg.vecdot(m, m),
        "linalg.tensorinv": lambda: np.linalg.tensorinv(m.reshape(8, SIDE // 8, SIDE), 2), "linalg.tensorsolve": lambda: np.linalg.tensorsolve(m.reshape(8, SIDE // 8, SIDE), m[0].reshape(8, SIDE // 8)), "linalg.cholesky": lambda: np.linalg.cholesky(m @ m.conj().T), "linalg.eigh": lambda: np.linalg.eigh(m + m.conj().T), "linalg.eigvalsh": lambda: np.linalg.eigvalsh(m + m.conj().T),
        "fft.fft2": lambda: np.fft.fft2(m), "fft.ifft2": lambda: np.fft.ifft2(m), "fft.rfft2": lambda: np.fft.rfft2(m), "fft.irfft2": lambda: np.fft.irfft2(m), "fft.fftn": lambda: np.fft.fftn(m), "fft.fftfreq": lambda: np.fft.fftfreq(SIZE), "fft.rfftfreq": lambda: np.fft.rfftfreq(SIZE * 2),
    }  # fmt: skip
    two = [(2.0, 3.0), (9, 0.5), (0.5,), ()]
    for name in functions("random"):
        function = getattr(np.random, name)
        calls[f"random.{name}"] = {
            "choice": lambda: np.random.choice(x, SIZE), "permutation": lambda: np.random.permutation(x), "shuffle": lambda: np.random.shuffle(x),
            "rand": lambda: np.random.rand(SIZE), "randn": lambda: np.random.randn(SIZE), "randint": lambda: np.random.randint(0, 9, SIZE), "random_integers": None,
            "dirichlet": lambda: np.random.dirichlet([1, 2], SIZE), "multinomial": lambda: np.random.multinomial(9, [0.5, 0.5], SIZE), "hypergeometric": lambda: np.random.hypergeometric(5, 5, 5, SIZE),
            "multivariate_normal": lambda: np.random.multivariate_normal([0, 0], np.eye(2), SIZE), "triangular": lambda: np.random.triangular(0, 1, 2, SIZE), "noncentral_f": lambda: np.random.noncentral_f(2, 3, 1, SIZE),
        }.get(name, lambda f=function: first_that_works([lambda a=a: f(*a, size=SIZE) for a in two]))  # fmt: skip
    calls[None] = [(x,), (x, x), (m,), (m, m), (x, x, x)]
    return calls


def functions(area: str) -> list[str]:
    module = getattr(np, area) if area else np
    found = []
    for name in sorted(dir(module)):
        if name.startswith("_") or name in ASIDE or (area and name == "test"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            member = getattr(module, name, None)
        if callable(member) and not isinstance(member, type) and not inspect.ismodule(member):
            found.append(name)
    return found


def first_that_works(calls):
    for call in calls[:-1]:
        try:
            return call()
        except Exception:  # the next one may fit
            continue
    return calls[-1]()


def counters() -> tuple[Counter, int]:
    stats = gpushim._shim.stats()
    calls = Counter({row["name"]: row["device_calls"] for row in stats["functions"]})
    return calls, stats["memory"]["read_faults"]


def probe(area: str, name: str, dtype: str) -> str:
    """GPU, composed, mixed (NumPy touched the data as well), CPU, view, or "" where NumPy has no such call."""
    full = f"{area}.{name}" if area else name
    with gpushim.disabled():
        calls = samples(dtype)
    call = calls.get(full, False)
    if call is None:
        return ""
    if call is False:
        function = getattr(getattr(np, area) if area else np, name)
    else:
        with gpushim.disabled():
            if not works(call):
                return ""
    # Arrays that were made by gpushim's NumPy, as a program's are.
    calls = samples(dtype)
    if full in calls:
        call = calls[full]
    else:
        call = next((c for c in tries_of(function, calls) if works_disabled(c)), None)
        if call is None:
            return ""
    gpushim.synchronize()
    before, faults_before = counters()
    try:
        result = call()
    except Exception:
        return ""
    after, faults_after = counters()
    gpushim.synchronize()
    ran = {key for key, count in (after - before).items() if count > 0}
    own = {name, f"ndarray.{name}", f"{name}.reduce", f"numpy.{name}", full, *OWN.get(name, [])}
    if ran & own:
        return "GPU"
    parts = result if isinstance(result, list | tuple) else [result]
    if parts and all(isinstance(part, np.ndarray) for part in parts) and not ran - MOVES:
        with gpushim.disabled():
            inputs = [array for arguments in calls[None] for array in arguments]
            if all(any(np.may_share_memory(part, array) for array in inputs) for part in parts):
                return "view"
    if ran - MOVES or (ran - {"ndarray.__getitem__", "ndarray.item"} and isinstance(result, np.ndarray)):
        return "composed" if faults_after == faults_before else "mixed"
    return "CPU"


def tries_of(function, calls):
    return [lambda a=a: function(*a) for a in calls[None]]


def works_disabled(call) -> bool:
    with gpushim.disabled():
        return works(call)


def works(call) -> bool:
    try:
        call()
    except Exception:
        return False
    return True


def describe(kinds: dict[str, str]) -> tuple[str, str]:
    """The kind that most dtypes have, and which those are."""
    present = {dtype: kind for dtype, kind in kinds.items() if kind}
    if not present:
        return "CPU", ""
    order = ["GPU", "composed", "mixed", "view", "CPU"]
    counts = Counter(present.values())
    best = max(order, key=lambda kind: counts[kind])
    parts = []
    for group, dtypes in GROUPS.items():
        having = [d for d in dtypes if present.get(d) == best]
        if having and len(having) == len([d for d in dtypes if d in present]):
            parts.append(group)
        elif having:
            parts.append(" ".join(np.dtype(d).name for d in having))
    others = sorted({f"{np.dtype(d).name} {LABELS.get(kind, kind)}" for d, kind in present.items() if kind != best})
    return best, ", ".join(parts) + (f"; {', '.join(others)}" if 0 < len(others) <= 4 else "")


def page(only: str) -> str:
    lines = []
    for area in ("", "linalg", "fft", "random"):
        # A matrix of these samples would be left to NumPy for its size.
        gpushim.install(device="host", min_bytes=0 if area == "linalg" else LEAST)
        lines += [
            f"\n## {'numpy.' + area if area else 'numpy'}\n",
            "| function | where | dtypes | also in NumPy |",
            "|---|---|---|---|",
        ]
        for name in functions(area):
            if only and name != only:
                continue
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                kinds = {dtype: probe(area, name, dtype) for group in GROUPS.values() for dtype in group}
            kind, dtypes = describe(kinds)
            dtypes = "" if kind == "CPU" else "all" if dtypes == ", ".join(GROUPS) else dtypes
            lines.append(
                f"| `{name}` | {LABELS.get(kind, kind)} | {dtypes} | {NOTES.get(name, '') if not area else ''} |"
            )
        gpushim.uninstall()
    return HEAD.format(version=np.__version__) + "\n".join(lines) + "\n"


HEAD = """<!-- Made by docs/coverage.py; run it again when routes change. -->

# What runs where

Every numeric function of NumPy {version}, called on arrays of every dtype with this build of gpushim, and what its counters
said: run `python docs/coverage.py` to make the table anew.

- **GPU**: the function has a route of its own.
- **composed**: NumPy's Python code runs, and its inner calls run on the device.
- **partly CPU**: composed, and some inner step reads the data in NumPy.
- **view**: no data moves.
- **CPU**: NumPy does the work, on the same arrays.

Independent of the table, a call goes to NumPy when an array is small, of another dtype (object, longdouble, text, dates,
structured), a subclass, byte-swapped or unaligned, and for the other reasons in [fallback.md](fallback.md).
Functions about dtypes, text, files, printing and settings are left out. The last column names more cases that NumPy does.
"""


def check() -> int:
    listed = re.findall(r"^(?:## numpy\.?(\w*)|\| `(\w+)` \|)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    area, found = "", set()
    for heading, name in listed:
        if name:
            found.add((area, name))
        else:
            area = heading
    wanted = {(area, name) for area in ("", "linalg", "fft", "random") for name in functions(area)}
    for text, names in (("not on the page", wanted - found), ("no longer in NumPy", found - wanted)):
        if names:
            print(f"docs/coverage.py: {text}: {sorted(names)}", file=sys.stderr)
    return int(wanted != found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", default="", metavar="NAME", help="print one function's row")
    options = parser.parse_args()
    if options.check:
        return check()
    text = page(options.only)
    if options.only:
        print(text[text.index("## numpy") :])
    else:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
