"""install, uninstall, and enabled / disabled."""

from __future__ import annotations

import threading

import gpushim
import numpy as np
import pytest


def run(python, code):
    done = python("-c", "import numpy as np, gpushim, threading\n" + code)
    assert done.returncode == 0, done.stderr
    return done


def test_public_names():
    # Names of NumPy appear in the module when they are first used.
    public = [
        name
        for name in vars(gpushim)
        if not name.startswith("_") and name not in set(dir(np)) - {"ndarray", "from_dlpack"}
    ]
    assert sorted(public) == sorted(gpushim.__all__) or set(public) - set(gpushim.__all__) <= {
        "conformance",
        "pytest_plugin",
        "Any",
    }
    assert set(gpushim.__all__) & set(dir(np)) == {"ndarray", "from_dlpack"}
    assert all(getattr(gpushim, name).__doc__ for name in gpushim.__all__)
    with pytest.raises(AttributeError):
        gpushim.no_such_name  # noqa: B018


def test_import_patches_nothing_and_loads_no_cuda(python):
    run(
        python,
        "assert not gpushim.is_installed()\n"
        "assert 'libcuda' not in open('/proc/self/maps').read()\n"
        "gpushim.uninstall()\n"
        "assert not gpushim.is_installed()\n",
    )


def test_install_is_idempotent_and_uninstall_exact(python):
    run(
        python,
        "assert gpushim.install(device='host', min_bytes=0)\n"
        "assert gpushim.install(device='cuda', min_bytes=99) and gpushim.is_installed()\n"
        "a = np.ones(1000) + 1\n"
        "assert gpushim.report().data['summary']['device_calls'] > 0\n"
        "assert gpushim.location(a) in ('device', 'pending', 'both', 'host', 'zero'), gpushim.location(a)\n"
        "gpushim.uninstall(); gpushim.uninstall()\n"
        "assert not gpushim.is_installed()\n"
        "assert gpushim.location(a) in ('host', 'foreign') and (a == 2).all()\n"
        "before = gpushim.report().data['summary']['device_calls']\n"
        "a + a; assert gpushim.report().data['summary']['device_calls'] == before\n"
        "assert gpushim.install(device='host', min_bytes=0) and (a + a == 4).all()\n"
        "assert gpushim.report().data['summary']['device_calls'] > before\n",
    )


@pytest.mark.parametrize("first", ["import numpy.fft, numpy.random", "pass"])
def test_modules_that_numpy_imports_late_are_hooked_when_they_come(python, first):
    code = """
import sys
FIRST
finders = list(sys.meta_path)
imported = "numpy.random._generator" in sys.modules
for again in range(2):
    gpushim.install(device="host", min_bytes=0)
    assert again or ("numpy.random._generator" in sys.modules) == imported
    import numpy.fft, numpy.random
    a = np.random.default_rng(1).random(100)
    assert gpushim.location(a) != "foreign"
    f = np.fft.fft(a)
    calls = {f["name"]: f["device_calls"] for f in gpushim.report().data["functions"]}
    assert calls["Generator.random"] and calls["fft.fft"], calls
    gpushim.uninstall()
    assert sys.meta_path == finders
    gpushim._shim.reset_stats()
    np.fft.fft(np.random.default_rng(1).random(100))
    assert not gpushim.report().data["functions"]
"""
    run(python, code.replace("FIRST", first))


def test_names_captured_before_install_are_accelerated(python):
    run(
        python,
        "from numpy import sin\n"
        "gpushim.install(device='host', min_bytes=0); sin(np.ones(10))\n"
        "assert any(f['name'] == 'sin' and f['device_calls'] for f in gpushim.report().data['functions'])\n",
    )


def test_disabled_is_per_thread_and_nests(python):
    run(
        python,
        "gpushim.install(device='host', min_bytes=0)\n"
        "calls = lambda: gpushim.report().data['summary']['device_calls']\n"
        "def used(f):\n"
        "    before = calls(); f(); return calls() > before\n"
        "work = lambda: np.ones(10) + 1\n"
        "assert used(work)\n"
        "with gpushim.disabled():\n"
        "    assert not used(work)\n"
        "    with gpushim.enabled():\n"
        "        assert used(work)\n"
        "    assert not used(work)\n"
        "    seen = []\n"
        "    t = threading.Thread(target=lambda: seen.append(used(work))); t.start(); t.join()\n"
        "    assert seen == [True]\n"
        "assert used(work)\n"
        "assert not used(gpushim.disabled()(work)) and used(work)\n"
        "try:\n"
        "    with gpushim.disabled(): 1 / 0\n"
        "except ZeroDivisionError: pass\n"
        "assert used(work)\n",
    )


def test_switches_work_without_install_and_in_many_threads():
    switch = gpushim.disabled()
    errors = []

    def enter():
        try:
            for _ in range(100):
                with switch, switch:
                    pass
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_wrong_arguments():
    with pytest.raises(TypeError, match="unexpected setting 'colour'"):
        gpushim.install(colour="red")
    with pytest.raises(ValueError, match="device="):
        gpushim.install(device="tpu")
    with pytest.raises(TypeError):
        gpushim.location([1, 2])


def test_a_program_that_installs_itself_reports_by_variable(python):
    done = python("-c", "import gpushim; gpushim.install(device='host')", environment={"GPUSHIM_REPORT": "json"})
    assert done.stderr.startswith('{"summary"')


def test_a_forked_child_writes_no_report(python):
    code = "import os, sys, gpushim; gpushim.install(device='host', report='text'); pid = os.fork()\nif pid: os.waitpid(pid, 0)"
    assert python("-c", code).stderr.count("gpushim:") == 1


def test_system_and_memory_info():
    info = gpushim.system_info()
    assert info["numpy"] == np.__version__
    assert info["gpushim"] == gpushim.__version__
    assert isinstance(info["cuda_built_in"], bool)
    assert all(isinstance(value, int) for value in gpushim.memory_info().values())


def test_the_version_is_the_packages():
    from importlib.metadata import PackageNotFoundError, version

    try:
        assert version("gpushim") == gpushim.__version__
    except PackageNotFoundError:
        pytest.skip("not installed as a package")
