"""Third-party libraries on gpushim.ndarray; each is skipped where it is not installed."""

import importlib.util
import os
import pathlib
import pickle
import subprocess
import sys

import gpushim as xp
import numpy as np
import pytest

SAMPLES = np.random.default_rng(0).normal(size=(40, 4)) @ np.diag([4.0, 2.0, 1.0, 0.5])


def example_library():
    path = pathlib.Path(__file__).parents[2] / "examples" / "library.py"
    spec = importlib.util.spec_from_file_location("library", path)
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    return library


@pytest.mark.parametrize("kind", ["numpy", "gpushim", "torch", "cupy", "array_api_strict"])
def test_the_example_library(kind):
    module = pytest.importorskip(kind)
    if kind in ("torch", "cupy"):  # they have no __array_namespace__
        pytest.importorskip("array_api_compat")
    try:
        x = module.asarray(SAMPLES)
    except Exception as error:  # CuPy without a device
        pytest.skip(str(error))
    library = example_library()
    white = library.whiten(x, 2)
    assert type(white) is type(x)
    plain = np.asarray(white.get() if kind == "cupy" else white)
    np.testing.assert_allclose(np.cov(plain.T), np.eye(2), atol=1e-9)


def test_array_api_compat_and_extra():
    compat = pytest.importorskip("array_api_compat")
    x = xp.ones((2, 3))
    assert compat.is_array_api_obj(x) and not compat.is_numpy_array(x) and compat.array_namespace(x) is xp
    assert compat.device(x) == x.device and compat.to_device(x, x.device) is x and compat.size(x) == 6
    extra = pytest.importorskip("array_api_extra")
    assert (
        type(extra.cov(x, xp=xp)) is xp.ndarray and type(extra.atleast_nd(xp.asarray(1.0), ndim=2, xp=xp)) is xp.ndarray
    )


def run(code, **environment):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=os.environ | environment, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_scikit_learn_dispatches():
    pytest.importorskip("sklearn")
    pytest.importorskip("array_api_compat")
    run(
        """
import numpy as np, gpushim as xp, sklearn
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, mean_squared_error
rng = np.random.default_rng(0)
a, t = rng.normal(size=(60, 5)), rng.normal(size=60)
c = (a[:, 0] > 0).astype(int)
x, y, k = xp.asarray(a), xp.asarray(t), xp.asarray(c)
sklearn.set_config(array_api_dispatch=True)
for make, target, plain in ((lambda: PCA(2, svd_solver="full"), None, None), (lambda: Ridge(solver="svd"), y, t), (LinearDiscriminantAnalysis, k, c)):
    ours, theirs = make().fit(x, target), make().fit(a, plain)
    method = "transform" if target is None else "predict"
    got = getattr(ours, method)(x)
    assert type(got) is xp.ndarray, type(got)
    np.testing.assert_allclose(np.asarray(got), getattr(theirs, method)(a), rtol=1e-6, atol=1e-8)
assert float(mean_squared_error(y, y + 1)) == 1.0 and float(accuracy_score(k, k)) == 1.0
""",
        SCIPY_ARRAY_API="1",
    )


def test_scipy_dispatches():
    pytest.importorskip("scipy", minversion="1.15")  # before, special.expit knew a list of libraries
    run(
        """
import numpy as np, gpushim as xp
from scipy import fft, ndimage, signal, special, stats
a = np.random.default_rng(0).normal(size=(8, 16)); x = xp.asarray(a)
for function in (lambda m: special.expit(m), lambda m: special.logsumexp(m, axis=1), lambda m: stats.zscore(m), lambda m: stats.skew(m),
                 lambda m: signal.detrend(m), lambda m: fft.fft(m), lambda m: ndimage.gaussian_filter(m, 1.0)):
    got, expected = function(x), function(a)
    assert type(got) is xp.ndarray, type(got)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-9, atol=1e-9)
""",
        SCIPY_ARRAY_API="1",
    )


def test_scipy_cluster_dispatches():
    pytest.importorskip("scipy")
    run(
        """
import numpy as np, gpushim as xp
from scipy.cluster import hierarchy, vq
a = np.random.default_rng(0).normal(size=(40, 3)); x = xp.asarray(a)
for function in (vq.whiten, lambda m: vq.vq(m, m[:4])[0], lambda m: vq.kmeans(m, m[:4])[0], hierarchy.linkage, lambda m: hierarchy.fcluster(hierarchy.linkage(m), 2.0)):
    got, expected = function(x), function(a)
    assert type(got) is xp.ndarray, type(got)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-9, atol=1e-9)
""",
        SCIPY_ARRAY_API="1",
    )


def test_numba():
    numba = pytest.importorskip("numba")
    a, x = SAMPLES, xp.asarray(SAMPLES)

    @numba.njit
    def total(m):
        return m.sum()

    @numba.vectorize
    def product(p, q):
        return p * q + 1

    @numba.guvectorize(["(float64[:],float64[:])"], "(n)->()")
    def largest(row, out):
        out[0] = row.max()

    assert abs(total(np.asarray(x)) - a.sum()) < 1e-9
    for got, expected in ((product(x, x), a * a + 1), (largest(x), a.max(axis=1))):
        assert type(got) is xp.ndarray
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-12)


def test_h5py(tmp_path):
    h5py = pytest.importorskip("h5py")
    x = xp.asarray(SAMPLES) * 2
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"] = x
        file.create_dataset("b", x.shape)[...] = x
        back = xp.zeros(x.shape) + 1
        file["a"].read_direct(np.asarray(back))
        assert bool((back == x).all()) and bool((xp.asarray(file["b"]) == xp.asarray(x, dtype=np.float32)).all())


def test_containers_and_plots():
    xarray = pytest.importorskip("xarray")
    x = xp.arange(6.0).reshape(2, 3)
    array = xarray.DataArray(x, dims=("t", "s"))
    assert type((array + 1).mean("t").data) is xp.ndarray and type((x[0] * array).data) is xp.ndarray
    pandas = pytest.importorskip("pandas")
    assert pandas.Series(x[0]).sum() == 3 and pandas.DataFrame(np.asarray(x)).shape == (2, 3)


def test_matplotlib():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    axes.plot(xp.arange(5.0), xp.sin(xp.arange(5.0)))
    axes.imshow(xp.ones((4, 4)))
    figure.canvas.draw()
    plt.close(figure)


def test_dask_chunks_and_serialisation():
    da = pytest.importorskip("dask.array")
    x = xp.arange(24.0).reshape(4, 6) + 1
    d = da.from_array(x, chunks=(2, 3), asarray=False)
    assert type(d._meta) is xp.ndarray
    for expression in (
        d + 1,
        d.T,
        da.tensordot(d, d.T, axes=1),
        da.concatenate([d, d]),
        d.sum(axis=0),
        da.einsum("ij,kj->ik", d, d),
    ):
        result = expression.compute(scheduler="synchronous")
        assert type(result) is xp.ndarray
    np.testing.assert_allclose(np.asarray((d @ d.T).compute(scheduler="synchronous")), np.asarray(x @ x.T))
    protocol = pytest.importorskip("distributed.protocol")
    back = protocol.deserialize(*protocol.serialize(x))
    assert type(back) is xp.ndarray and back.tolist() == x.tolist()


def test_joblib_and_pickle_out_of_band():
    joblib = pytest.importorskip("joblib")
    x = xp.ones(4) * 2
    assert joblib.Parallel(n_jobs=2, backend="threading")(joblib.delayed(float)(v) for v in x) == [2.0] * 4
    assert pickle.loads(pickle.dumps(x)).tolist() == [2, 2, 2, 2]
    run(
        """
import gpushim as xp, joblib
x = xp.linspace(0, 1, 1000)
for got in joblib.Parallel(n_jobs=2)(joblib.delayed(xp.sin)(x) for _ in range(2)):  # processes
    assert type(got) is xp.ndarray and bool((got == xp.sin(x)).all())
assert joblib.hash(x) == joblib.hash(x.copy())
"""
    )


def test_host_dlpack():
    x = xp.arange(3.0) + 1
    torch = pytest.importorskip("torch")
    if x.device != "cpu":
        pytest.skip("the host device's DLPack")
    t = torch.from_dlpack(x)
    assert t.data_ptr() == np.asarray(x).ctypes.data
    assert type(xp.from_dlpack(t)) is xp.ndarray


def test_dask_workers_run_on_the_device():
    pytest.importorskip("distributed")
    example = pathlib.Path(__file__).parents[2] / "examples" / "dask_blocks.py"
    device = os.environ.get("GPUSHIM_TEST_DEVICE", "host")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", example, device], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "calls on the device" in done.stdout
