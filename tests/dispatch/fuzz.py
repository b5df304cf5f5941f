"""Runs random programs (test_random_programs.py) in many processes, for a time, and counts them.

    python tests/dispatch/fuzz.py --device cuda --jit --seconds 120 --processes 16

A compiled kernel costs NVRTC a third of a second of one core, and a random program of thirty steps has three that no
other has had: that is what limits `--jit`. So programs are shorter there, and each is played on several inputs, which
share its kernels. What is counted: programs (lists of steps, all different), plays (a program on one input, compared
with stock NumPy), kernels compiled.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
import warnings
from pathlib import Path


def worker(options) -> None:
    import gpushim
    import test_random_programs as programs

    warnings.simplefilter("ignore")
    gpushim.install(device=options.device, min_bytes=0)
    rng = random.Random(options.seed)
    end = time.monotonic() + options.seconds
    n_programs = n_plays = n_different = 0

    def differs(steps, variant):
        with gpushim.disabled():
            stock = programs.play(steps, variant)
        mine = programs.play(steps, variant)
        with gpushim.disabled():
            try:
                programs.same_outcome(mine, stock)
            except AssertionError:
                return True
        return False

    def shortest(steps, variant):
        for i in reversed(range(len(steps))):
            fewer = steps[:i] + steps[i + 1 :]
            if differs(fewer, variant):
                steps = fewer
        return steps

    while time.monotonic() < end and n_different < 3:
        steps = [
            (rng.randrange(programs.CODES), *(rng.randrange(64) for _ in range(3)))
            for _ in range(rng.randrange(2, options.steps + 1))
        ]
        n_programs += 1
        for variant in range(options.inputs):
            n_plays += 1
            if differs(steps, variant):
                n_different += 1
                print("DIFFERENT", variant, shortest(steps, variant), flush=True)
                break
    memory = gpushim._shim.stats()["memory"]
    print(
        "COUNT", n_programs, n_plays, n_different, memory["compiled_kernels"], memory["compiled_programs"], flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="host")
    parser.add_argument("--jit", action="store_true", help="compile every program at its first run")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, help="of a program, at most; 30, with --jit 10")
    parser.add_argument("--inputs", type=int, help="plays of a program; 2, with --jit 8")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.steps = options.steps or (10 if options.jit else 30)
    options.inputs = options.inputs or (8 if options.jit else 2)
    if options.worker:
        worker(options)
        return
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    if options.jit:
        environment |= {"GPUSHIM_JIT_ALWAYS": "1", "GPUSHIM_FUZZ_LARGE": "1"}
    command = [sys.executable, __file__, "--worker", "--device", options.device, "--seconds", str(options.seconds)]
    command += ["--steps", str(options.steps), "--inputs", str(options.inputs)]
    children = [
        subprocess.Popen(
            [*command, "--seed", str(options.seed * 1000 + i)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parent,
        )
        for i in range(options.processes)
    ]
    totals, failed = [0] * 5, 0
    for child in children:
        output, _ = child.communicate()
        counted = False
        for line in output.splitlines():
            if line.startswith("COUNT"):
                totals = [a + int(b) for a, b in zip(totals, line.split()[1:], strict=True)]
                counted = True
            else:
                print(line)
        failed += not counted
    print(
        "{} programs, {} plays, {} different; {} kernels compiled, {} programs in compiled kernels".format(*totals),
        f"; {failed} of {len(children)} processes died" if failed else "",
    )
    sys.exit(failed > 0 or totals[2] > 0)


if __name__ == "__main__":
    main()
