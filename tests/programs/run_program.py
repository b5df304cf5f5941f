"""Calls main(n, seed) of a program file and pickles what it returns, with the report when gpushim is at work.

Usage: run_program.py program.py n seed output.pickle
"""

import pickle
import runpy
import sys
from pathlib import Path

program, n, seed, output = sys.argv[1:]
module = runpy.run_path(program)
results = module["main"](int(n), int(seed))
report = None
if "gpushim" in sys.modules:
    import gpushim

    report = gpushim.report().data
Path(output).write_bytes(pickle.dumps((results, module.get("TOLERANCE", {}), report)))
