"""Times NumPy, gpushim and CuPy on one machine in one run, and writes benchmarks/results/<device>-<date>.{json,md}.

    python benchmarks/run.py [--device cuda|host] [--largest 1e8] [--output FOLDER]

Each library runs in a process of its own (gpushim replaces NumPy in its process); CuPy takes part where it is installed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import platform
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Turns of the libraries in a measurement, of which the best counts: a GPU that has become warm is a few percent slower,
#: for whoever runs then.
TURNS, OVERHEAD_TURNS = 2, 3


def measure(library: str, part: str, options: argparse.Namespace) -> dict:
    print(f"{library}: {part}", file=sys.stderr, flush=True)
    command = [sys.executable, HERE / "measure.py", library, part, "--device", options.device]
    done = subprocess.run([*command, "--largest", str(options.largest)], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"benchmarks: {library} failed in {part}")
    return json.loads(done.stdout)


def in_turns(libraries: list[str], part: str, options: argparse.Namespace, turns: int) -> dict[str, dict]:
    results: dict[str, dict] = {library: {} for library in libraries}
    for _ in range(turns):
        for library, best in results.items():
            for case, result in measure(library, part, options).items():
                earlier = best.setdefault(case, result)
                earlier["seconds"] = min(earlier["seconds"], result["seconds"])
    return results


def device_name(device: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gpushim", "--device", device, "--info"], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip() or "benchmarks: no device")
    return json.loads(done.stdout)["device_name"]


def versions(libraries: list[str]) -> dict[str, str]:
    found = {"python": platform.python_version(), "system": platform.platform()}
    for library in libraries:
        names = ("cupy", "cupy-cuda12x", "cupy-cuda13x") if library == "cupy" else (library,)
        for name in names:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
    return found


def milliseconds(result: dict | None, key: str = "seconds") -> str:
    return f"{result[key] * 1e3:.3f}" if result else "-"


def ratio(numerator: dict | None, denominator: dict | None, key: str = "seconds") -> str:
    return f"{numerator[key] / denominator[key]:.2f}" if numerator and denominator else "-"


def markdown(data: dict) -> str:
    compute, copies, small = data["compute"], data["copies"], data["overhead"]
    ours, stock, cupy = compute["gpushim"], compute["numpy"], compute.get("cupy", {})
    lines = [
        f"# {data['device']}, {data['date']}\n",
        f"    {data['command']}\n",
        ", ".join(f"{name} {version}" for name, version in data["versions"].items()) + ".\n",
        "Milliseconds a call in the steady state, and for the first call; a ratio above 1 means that gpushim is faster.\n",
        "| case | NumPy | CuPy | gpushim | NumPy / gpushim | CuPy / gpushim | first CuPy | first gpushim |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, result in ours.items():
        cells = (milliseconds(stock.get(case)), milliseconds(cupy.get(case)), milliseconds(result))
        ratios = (ratio(stock.get(case), result), ratio(cupy.get(case), result))
        firsts = (milliseconds(cupy.get(case), "first"), milliseconds(result, "first"))
        lines.append(f"| {case} | " + " | ".join((*cells, *ratios, *firsts)) + " |")
    lines += ["", "| copies in the steady state | CuPy (pageable) | gpushim |", "|---|---|---|"]
    for way, result in copies["gpushim"].items():
        rates = [copies.get("cupy", {}).get(way), result]
        texts = (f"{rate['bytes_per_second'] / 2**30:.1f} GiB/s" if rate else "-" for rate in rates)
        lines.append(f"| {way} | " + " | ".join(texts) + " |")
    lines += ["", "| microseconds a call | NumPy | with gpushim installed | ratio |", "|---|---|---|---|"]
    for case, result in small["gpushim"].items():
        before = small["numpy"].get(case)
        first = f"{before['seconds'] * 1e6:.3f}" if before else "-"
        lines.append(f"| {case} | {first} | {result['seconds'] * 1e6:.3f} | {ratio(result, before)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "host"))
    parser.add_argument("--largest", type=float, default=1e8, help="leave out arrays of more elements")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()

    libraries = ["gpushim"]
    if options.device == "cuda" and importlib.util.find_spec("cupy"):
        libraries.append("cupy")
    overhead = in_turns(["numpy", "gpushim"], "overhead", options, OVERHEAD_TURNS)
    overhead["gpushim"].update(measure("gpushim", "recording", options))
    name, date = device_name(options.device), datetime.date.today().isoformat()
    data = {
        "device": name,
        "date": date,
        "command": "python benchmarks/run.py " + " ".join(sys.argv[1:]),
        "versions": versions(["numpy", *libraries]),
        "compute": {
            "numpy": measure("numpy", "compute", options),
            **in_turns(libraries, "compute", options, TURNS),
        },
        "copies": {library: measure(library, "copies", options) for library in libraries},
        "overhead": overhead,
    }
    options.output.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + f"-{date}"
    (options.output / f"{stem}.json").write_text(json.dumps(data, indent=1) + "\n")
    text = markdown(data)
    (options.output / f"{stem}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
