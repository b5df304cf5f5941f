"""Programs in processes of their own, and the modes they run in."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: Ways to run a program, as arguments of the interpreter. Forced: everything goes to the device, whatever its size.
MODES = {
    "stock": [],
    "host": ["-m", "gpushim", "--device", "host"],
    "host-forced": ["-m", "gpushim", "--device", "host", "--min-bytes", "0"],
    "cuda": ["-m", "gpushim", "--device", "cuda"],
    "cuda-forced": ["-m", "gpushim", "--device", "cuda", "--min-bytes", "0"],
}


def run_python(*arguments: object, timeout: float = 120, environment: dict[str, str] | None = None, **options):
    """Runs this interpreter with arguments; a CompletedProcess with text output. GPUSHIM_* variables do not leak in."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GPUSHIM_")}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**variables, **(environment or {})},
        **options,
    )


@functools.cache
def has_cuda() -> bool:
    """Whether a CUDA device can be used here: asked in a process of its own, so that this one stays without."""
    import gpushim

    return gpushim.system_info()["cuda_built_in"] and run_python(*MODES["cuda"], "--info").returncode == 0


def available_modes() -> list[str]:
    return [mode for mode in MODES if not mode.startswith("cuda") or has_cuda()]


def shared_folder(name: str) -> Path | None:
    """A folder of programs that is kept outside the repository: below GPUSHIM_SHARED, or shared/ beside or in it."""
    places = (
        [Path(os.environ["GPUSHIM_SHARED"])]
        if "GPUSHIM_SHARED" in os.environ
        else [ROOT.parent / "shared", ROOT / "shared"]
    )
    return next((place / name for place in places if (place / name).is_dir()), None)


def shared_files(name: str) -> list:
    """The Python files of such a folder as test parameters; one skipped parameter when there is no such folder."""
    folder = shared_folder(name)
    if folder is None:
        reason = f"no folder shared/{name} beside the repository; set GPUSHIM_SHARED to the folder that holds {name}/"
        return [pytest.param(None, id="none", marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(path, id=path.stem) for path in sorted(folder.glob("*.py"))]
