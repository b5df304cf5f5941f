"""Small programs that say by their exit status whether NumPy's behaviour is kept, in every mode."""

from __future__ import annotations

import numpy as np
import pytest
from modes import MODES, available_modes, run_python, shared_files


@pytest.mark.parametrize("mode", available_modes())
@pytest.mark.parametrize("case", shared_files("cases"))
def test_case(case, mode, tmp_path):
    done = run_python(*MODES[mode], case, timeout=280, cwd=tmp_path)
    if done.returncode == 0:
        return
    stock = done if mode == "stock" else run_python(case, timeout=280, cwd=tmp_path)
    if stock.returncode != 0:
        pytest.skip(f"NumPy {np.__version__} itself fails: {(stock.stderr.strip().splitlines() or [''])[-1]}")
    pytest.fail(f"exit status {done.returncode}\n{done.stderr[-4000:]}")
