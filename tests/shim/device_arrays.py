"""Arrays whose value the device holds, and scripts run in a process of their own."""

import os
import pathlib
import subprocess
import sys
import textwrap

import gpushim
import numpy as np

DEVICE_STATES = ("device", "pending")


def on_device(array):
    """Make the device own the value of the array, in place; returns the array."""
    np.add(array, array.dtype.type(0), out=array)
    assert gpushim.location(array) in DEVICE_STATES, gpushim.location(array)
    return array


def device_arange(n, dtype=np.float64):
    return on_device(np.arange(n, dtype=dtype))


def run_script(script, *flags, timeout=120):
    """Run a script after `install(device="host", min_bytes=0)`, unless it says `# install by hand`."""
    here = str(pathlib.Path(__file__).parent)
    script = textwrap.dedent(script)
    if "# install by hand" not in script:
        script = "import gpushim\ngpushim.install(device='host', min_bytes=0)\nfrom device_arrays import *\n" + script
    path = os.pathsep.join([here] + [p for p in sys.path if p])
    env = dict(os.environ, PYTHONPATH=path, PYTHONFAULTHANDLER="")
    return subprocess.run(
        [sys.executable, *flags, "-c", script], env=env, capture_output=True, text=True, timeout=timeout
    )


def check_script(script, *flags, **kwargs):
    """The script must end well and silently; returns what it printed."""
    done = run_script(script, *flags, **kwargs)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert done.stderr == ""
    return done.stdout
