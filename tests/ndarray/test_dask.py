"""Dask workers with gpushim: the plugin, the preload module, what travels between processes, and misuse."""

import os
import pathlib
import subprocess
import sys
import textwrap

import gpushim as xp
import numpy as np
import pytest

distributed = pytest.importorskip("distributed")
DEVICE = os.environ.get("GPUSHIM_TEST_DEVICE", "host")

PROGRAM = """
    import dask.array as da
    import numpy as np

    def calls():
        import gpushim
        return gpushim.is_installed(), sum(f["device_calls"] for f in gpushim._shim.stats()["functions"])

    def check(client, expected=True):
        x = da.random.default_rng(1).random((600, 600), chunks=(200, 200))
        y = (da.sin(x) ** 2 + da.cos(x) ** 2).sum()
        assert abs(client.compute(y).result() - 360000) < 1e-6
        for installed, made in client.run(calls).values():
            assert installed == expected and (made > 0) == expected, (installed, made)
"""


def run(tmp_path, code, timeout=180):
    """Runs a program that may start processes: it is a file with a main guard."""
    path = tmp_path / "program.py"
    path.write_text(
        textwrap.dedent(PROGRAM) + "\nif __name__ == '__main__':\n" + textwrap.indent(textwrap.dedent(code), "    ")
    )
    environment = os.environ | {
        "GPUSHIM_DEVICE": DEVICE, "GPUSHIM_MIN_BYTES": "0",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "60s", "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "False",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-W", "ignore", path], capture_output=True, text=True, timeout=timeout, env=environment)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_the_preload_module(tmp_path):
    worker = "import dask.__main__ as m, sys; sys.argv = ['dask', *sys.argv[1:]]; m.main()"
    run(
        tmp_path,
        f"""
        import subprocess, sys
        from distributed import Client, LocalCluster
        with LocalCluster(n_workers=0, dashboard_address=None) as cluster, Client(cluster) as client:
            started = subprocess.Popen([sys.executable, "-c", {worker!r}, "worker", cluster.scheduler_address,
                                        "--nthreads", "1", "--no-dashboard", "--preload", "gpushim.dask"])
            try:
                client.wait_for_workers(1, timeout=120)
                check(client)
            finally:
                started.terminate()
                started.wait()
        """,
    )


def test_the_plugin_and_its_end(tmp_path):
    run(
        tmp_path,
        """
        import gpushim.dask
        from distributed import Client, LocalCluster
        with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster, Client(cluster) as client:
            client.register_plugin(gpushim.dask.WorkerPlugin(min_bytes=0))
            check(client)
            client.unregister_worker_plugin("gpushim")
            assert not any(installed for installed, _ in client.run(calls).values())
        """,
    )


def test_arrays_travel_as_buffers():
    from distributed.protocol import deserialize, serialize

    x = xp.arange(100_000.0).reshape(100, 1000) * 1
    header, frames = serialize(x)
    assert (
        sum(memoryview(f).nbytes for f in frames) < x.nbytes + 2000
        and max(memoryview(f).nbytes for f in frames) == x.nbytes
    )
    back = deserialize(header, frames)
    assert type(back) is xp.ndarray and bool((back == x).all())


def test_misuse_is_told_where_it_happens():
    import gpushim.dask

    with pytest.raises(TypeError, match="no_such_setting"):
        gpushim.dask.WorkerPlugin(no_such_setting=1)
    with pytest.raises(ValueError, match="device"):
        gpushim.dask.WorkerPlugin(device="tpu")
    hidden = "import sys; sys.modules['distributed'] = None\nimport gpushim.dask"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    assert "gpushim.dask needs Dask's distributed" in done.stderr


def test_workers_on_one_machine_share_its_gpus(monkeypatch):
    import gpushim.dask

    monkeypatch.setattr(gpushim.dask, "_gpus", lambda: 4)
    for name, expected in ((0, "0"), (5, "1"), ("tcp-worker-7", "3")):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        gpushim.dask._choose_gpu(name)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == expected
    gpushim.dask._choose_gpu(2)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3", "who said which keeps it"
    assert np.asarray(xp.ones(2)).sum() == 2 and pathlib.Path(gpushim.dask.__file__).name == "dask.py"
