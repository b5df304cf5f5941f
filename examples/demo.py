"""Runs photo.py, which knows nothing of GPUs, three ways: stock NumPy, gpushim's host device, and CUDA where there is a GPU.

    python examples/demo.py [--output FOLDER]

Compares the results, and says how long each took, what ran where, and where the pictures are.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

EXAMPLE = Path(__file__).resolve().parent / "photo.py"


def has_cuda():
    info = subprocess.run([sys.executable, "-m", "gpushim", "--device", "cuda", "--info"], capture_output=True)
    return info.returncode == 0


def run(title, launcher, output):
    print(f"--- {title}: {' '.join(['python', *launcher, 'examples/photo.py'])}", flush=True)
    start = time.perf_counter()
    subprocess.run([sys.executable, *launcher, str(EXAMPLE), "--output", str(output)], check=True)
    print(f"total    {time.perf_counter() - start:7.3f} s\n", flush=True)
    with np.load(output / "results.npz") as results:
        return dict(results)


def differences(stock, other):
    """What is wrong with a run's results: pictures must agree to one level, labels except between equally near colours."""
    wrong = []
    levels = np.abs(np.round(other["clean"]) - np.round(stock["clean"])).max()
    if levels > 1:
        wrong.append(f"clean differs by {levels:.0f} levels")
    centres = np.abs(other["centres"] - stock["centres"]).max()
    if centres > 1e-6:
        wrong.append(f"centres differ by {centres:.3g}")
    pixels = stock["clean"].reshape(-1, 3)
    at = np.flatnonzero(other["labels"] != stock["labels"])
    near, far = (np.linalg.norm(pixels[at] - stock["centres"][r["labels"][at]], axis=1) for r in (stock, other))
    apart = np.abs(near - far) > 1e-6
    if apart.any():
        wrong.append(f"{np.count_nonzero(apart)} labels differ")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    output = parser.parse_args().output

    report = ["-m", "gpushim", "--report"]
    runs = {"stock NumPy": ([], "stock"), "gpushim, host device": ([*report, "--device", "host"], "host")}
    if has_cuda():
        runs["gpushim, CUDA"] = ([*report, "--device", "cuda"], "cuda")
    results = {title: run(title, launcher, output / folder) for title, (launcher, folder) in runs.items()}

    stock = results.pop("stock NumPy")
    failed = False
    for title, result in results.items():
        wrong = differences(stock, result)
        failed = failed or bool(wrong)
        print(f"{title}: {'; '.join(wrong) if wrong else 'same results as stock NumPy'}")
    print(f"pictures: {output}/{{{','.join(folder for _, folder in runs.values())}}}/{{noisy,clean,quantised}}.png")
    if len(runs) == 2:
        print("no CUDA device here: the host device shows what gpushim does, not how fast a GPU is")
    sys.exit(failed)


if __name__ == "__main__":
    main()
