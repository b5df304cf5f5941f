"""gpushim.ndarray and the namespace: one body, run with numpy and with gpushim."""

import copy
import importlib
import inspect
import operator
import pickle
import warnings

import gpushim
import gpushim as xp
import numpy as np
import pytest


def held(x):
    return np.asarray(x)


def on_device(x):
    return gpushim.location(held(x)) in ("device", "pending")


def test_it_is_not_a_subclass_and_numpy_stays_as_it_is():
    assert not issubclass(xp.ndarray, np.ndarray)
    assert not isinstance(xp.zeros(3), np.ndarray)
    xp.sin(xp.ones(3))
    assert not gpushim.is_installed()
    assert gpushim.location(np.zeros(1 << 20) + 1) == "foreign"


def test_every_attribute_of_numpy_is_there():
    # NumPy would prefer the first three to __array__ and copy; the others are for subclasses of numpy.ndarray.
    left_out = {"__buffer__", "__array_interface__", "__array_struct__", "__array_finalize__", "__array_wrap__",
                "__setstate__"}  # fmt: skip
    assert set(dir(np.ndarray)) - set(dir(xp.ndarray)) <= left_out
    for name in set(vars(np.ndarray)) - left_out - {"__new__"}:
        ours, theirs = getattr(xp.ndarray, name), getattr(np.ndarray, name)
        if (
            name in vars(xp.ndarray)
            and theirs is not None
            and name not in ("view", "device", "to_device")
            and "__" not in name
        ):
            assert ours.__doc__ == theirs.__doc__, name


def test_arrays_of_any_size_are_made_on_the_device():
    for x in (xp.ones(1), xp.arange(3), xp.full((2, 2), 7.0), xp.ones(3) + 1):
        assert type(x) is xp.ndarray and on_device(x), x
    assert gpushim.location(held(xp.zeros(4))) != "foreign"
    assert gpushim.location(held(xp.asarray([1.0, 2.0]))) != "foreign"
    assert gpushim.location(held(xp.asarray(np.ones(3)))) != "foreign"


def test_asarray_of_a_numpy_array():
    a = np.arange(3.0)
    x = xp.asarray(a)
    x += 1
    assert a[0] == 0
    shared = xp.asarray(a, copy=False)
    shared += 1
    assert a[0] == 1
    assert xp.asarray(x) is x and xp.asarray(x, copy=True) is not x


def test_results_mixed_with_plain_arrays_and_scalars():
    x, a = xp.arange(4.0), np.arange(4.0)
    for result in (x + a, a + x, x + 1, 2 / x.clip(1), np.sin(x), np.add(a, x), np.concatenate([a, x]), a @ x, x == a,
                   np.float64(2) * x, np.where(a > 1, x, a), -x, abs(x), divmod(x, 2)[0], np.add.outer(a, x),
                   np.add.reduceat(x, [0, 2]), np.multiply.accumulate(x), xp.stack([a, x])):  # fmt: skip
        assert type(result) is xp.ndarray


def test_reductions_stay_on_the_device():
    x = xp.arange(12.0).reshape(3, 4)
    before = gpushim._shim.stats()["memory"]
    total = x.sum()
    chain = (total - x.mean()) / x.max() + x[1, 2] * x.std() - xp.dot(x[0], x[1]) + x.argmax()
    assert chain.shape == () and type(chain) is xp.ndarray and on_device(total) and on_device(chain)
    after = gpushim._shim.stats()["memory"]
    assert after["download_count"] == before["download_count"] and after["fetches"] == before["fetches"]
    a = np.arange(12.0).reshape(3, 4)
    assert float(chain) == pytest.approx((a.sum() - a.mean()) / a.max() + a[1, 2] * a.std() - a[0] @ a[1] + a.argmax())


def test_outputs_are_kept():
    x, y, a = xp.ones(3), xp.empty(3), np.empty(3)
    z = x
    x += 1
    assert x is z
    assert np.add(x, 1, out=y) is y and y.tolist() == [3, 3, 3]
    assert np.add(x, 1, out=a) is a and a.tolist() == [3, 3, 3]
    assert xp.add(a, 1, out=a) is a
    assert np.cumsum(x, out=y) is y
    assert x.sum(out=xp.empty(())).shape == ()
    np.add(x, x, out=y, where=np.array([True, False, True]))
    np.add.at(y, [0, 0], 1)
    assert y.tolist() == [6, 4, 4]


def test_numpy_gets_the_held_array():
    x = xp.arange(3.0)
    a = np.asarray(x)
    assert type(a) is np.ndarray and a is np.asarray(x) and gpushim.asnumpy(x) is a
    a[0] = 9
    assert x[0] == 9
    x[1] = 8
    assert a[1] == 8
    assert np.asarray(x, dtype=np.float32).dtype == np.float32
    assert np.array(x) is not a
    with pytest.raises(ValueError):
        np.asarray(x, dtype=np.float32, copy=False)


def test_indexing_iteration_and_assignment():
    x, a = xp.arange(12).reshape(3, 4) * 1, np.arange(12).reshape(3, 4)
    keys = [
        0,
        -1,
        (1, 2),
        (xp.asarray(1), 2),
        slice(1, None),
        (slice(None), 0),
        a > 5,
        [0, 2],
        (xp.asarray([0, 1]), xp.asarray([1, 2])),
        None,
        ...,
    ]
    for key in keys:
        plain = tuple(map(gpushim.asnumpy, key)) if isinstance(key, tuple) and isinstance(key[0], xp.ndarray) else key
        assert type(x[key]) is xp.ndarray
        np.testing.assert_array_equal(held(x[key]), a[plain])
    element = x[0, 0]
    x[0, 0] = 100
    assert element == 0 and x[0, 0] == 100
    x[xp.asarray([1]), 1:] = xp.asarray([7, 8, 9])
    assert x[1].tolist() == [4, 7, 8, 9]
    assert [type(row) for row in x] == [xp.ndarray] * 3 and len(x) == 3 and 100 in x
    with pytest.raises(IndexError):
        x[7]
    with pytest.raises(TypeError, match="0-d"):
        iter(x[0, 0])
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


def test_text_and_numbers():
    x = xp.asarray([1.5, 2.5]) * 1
    assert repr(x) == repr(held(x)) and str(x) == str(held(x)) and f"{x[0]:.2f}" == "1.50"
    assert float(x[0]) == 1.5 and int(x[1]) == 2 and bool(x[0]) and complex(x[0]) == 1.5 and round(x[0].item()) == 2
    assert [10, 20, 30][xp.asarray(1)] == 20
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)


def test_attributes():
    x = xp.arange(6.0).reshape(2, 3)
    assert (x.shape, x.ndim, x.size, x.dtype, x.nbytes) == ((2, 3), 2, 6, np.dtype(float), 48)
    assert type(x.T) is type(x.real) is type(x.mT) is xp.ndarray
    x.real = 1
    assert x.sum() == 6
    with pytest.raises(AttributeError):
        x.no_such_thing  # noqa: B018
    with pytest.raises(AttributeError):
        x.size = 3


@pytest.mark.parametrize("protocol", range(2, 6))
def test_pickle_and_copy(protocol):
    x = xp.arange(5.0) + 1
    for y in (pickle.loads(pickle.dumps(x, protocol)), copy.copy(x), copy.deepcopy(x), x.copy()):
        assert type(y) is xp.ndarray and y.tolist() == x.tolist() and not np.shares_memory(y, x)
    buffers = []
    data = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(buffers) == 1 and len(data) < 400
    assert pickle.loads(data, buffers=buffers).tolist() == x.tolist()
    assert pickle.loads(pickle.dumps(xp.sin)).__wrapped__ is np.sin


class Tagged(xp.ndarray):
    tag = "none"

    def __array_finalize__(self, other):
        self.tag = getattr(other, "tag", "new")


def test_subclasses_survive():
    x = xp.arange(3.0).view(Tagged)
    x.tag = "mine"
    for y in (x + 1, x[1:], x.sum(), np.sin(x), np.stack([x, x]), x.T, x.copy(), xp.ones(3) * x):
        assert type(y) is Tagged and y.tag == "mine"
    assert Tagged((2,), dtype=int).tag == "new" and type(Tagged((2,))) is Tagged
    z = pickle.loads(pickle.dumps(x))
    assert type(z) is Tagged and z.tag == "mine"
    assert type(x.view(xp.ndarray)) is xp.ndarray


class Other:
    __array_ufunc__ = None

    def __radd__(self, other):
        return type(other)


class Dispatches:
    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return [type(i).__module__ for i in inputs]

    def __array_function__(self, func, types, args, kwargs):
        return sorted(t.__name__ for t in types)


def test_other_libraries_are_asked():
    x = xp.ones(2)
    assert x + Other() is not NotImplemented and x + Dispatches() == ["gpushim", __name__]
    assert np.concatenate([x, Dispatches()]) == ["Dispatches", "ndarray"]
    with pytest.raises(TypeError):
        np.add(x, Other())


def test_errors_are_numpys():
    x, a = xp.ones((2, 3)), np.ones((2, 3))
    for broken in (lambda m: m @ m, lambda m: m.reshape(5), lambda m: m + np.ones(4), lambda m: np.concatenate([m, m[0]]),
                   lambda m: m.sum(axis=4), lambda m: np.linalg.inv(m)):  # fmt: skip
        with pytest.raises(Exception) as theirs:
            broken(a)
        with pytest.raises(type(theirs.value)) as ours:
            broken(x)
        assert str(ours.value) == str(theirs.value)


def test_the_whole_namespace():
    missing = [n for n in dir(np) if not n.startswith("_") and not hasattr(xp, n)]
    assert not missing and set(dir(np)) - {n for n in dir(np) if n.startswith("_")} <= set(dir(xp))
    for module in ("linalg", "fft", "random", "testing", "polynomial"):
        ours, theirs = importlib.import_module(f"gpushim.{module}"), importlib.import_module(f"numpy.{module}")
        assert getattr(xp, module) is ours
        assert not [n for n in dir(theirs) if not n.startswith("_") and not hasattr(ours, n)]
    assert xp.float64 is np.float64 and xp.pi == np.pi and xp.newaxis is None
    assert xp.zeros.__doc__ == np.zeros.__doc__ and inspect.signature(xp.mean) == inspect.signature(np.mean)
    assert xp.install is gpushim.install and "install" not in dir(np)
    for broken in ("no_such_name", "_core"):
        with pytest.raises(AttributeError, match=broken):
            getattr(xp, broken)
    with pytest.raises(AttributeError):
        xp.linalg.no_such_name  # noqa: B018
    with pytest.raises(ImportError):
        importlib.import_module("gpushim.no_such_module")


def test_namespace_functions():
    assert type(xp.linalg.solve(xp.eye(2), np.ones(2))) is xp.ndarray
    assert type(xp.linalg.svd(xp.eye(2)).S) is xp.ndarray
    assert type(xp.fft.fft(xp.ones(4))) is xp.ndarray and type(xp.r_[1:3]) is xp.ndarray
    assert type(xp.mgrid[0:3]) is xp.ndarray and type(xp.add.reduce(xp.ones(3))) is xp.ndarray and xp.add.nin == 2
    xp.testing.assert_allclose(xp.ones(3), np.ones(3))
    with pytest.raises(AssertionError):
        xp.testing.assert_array_equal(xp.ones(3), xp.zeros(3))
    rng = xp.random.default_rng(3)
    expected = np.random.default_rng(3).normal(size=4)
    drawn = rng.normal(size=4)
    assert type(drawn) is xp.ndarray and drawn.tolist() == expected.tolist()
    assert isinstance(rng, xp.random.Generator) and isinstance(rng.spawn(1)[0], xp.random.Generator)
    assert type(xp.random.RandomState(1).rand(2)) is xp.ndarray
    assert pickle.loads(pickle.dumps(rng)).random() == rng.random()


def test_array_api_and_devices():
    x = xp.ones(2)
    assert x.__array_namespace__() is gpushim and x.__array_namespace__(api_version=xp.__array_api_version__) is gpushim
    with pytest.raises(ValueError):
        x.__array_namespace__(api_version="1984.12")
    if not hasattr(np, "__array_namespace_info__"):
        pytest.skip("NumPy before 2.1")
    info = xp.__array_namespace_info__()
    assert list(info.devices()) == [x.device] and info.default_device() == x.device
    assert info.dtypes(device=x.device) == info.dtypes()
    assert x.to_device(x.device) is x and xp.zeros(2, device=x.device).device == x.device
    for wrong in (
        lambda: x.to_device("tpu:3"),
        lambda: xp.zeros(2, device="tpu:3"),
        lambda: info.dtypes(device="tpu:3"),
    ):
        with pytest.raises(ValueError, match=r"tpu:3.*live on device"):
            wrong()


def test_disabled_and_install():
    x = xp.arange(5.0) + 1
    with gpushim.disabled():
        y = x + 1
    assert type(y) is xp.ndarray and y.tolist() == [2, 3, 4, 5, 6]


def test_without_a_device(python):
    code = "import gpushim as xp, numpy as np; x = xp.ones(3) + 1; assert type(x.sum()) is xp.ndarray and x.sum() == 6 and x.device == 'cpu'"
    done = python("-c", code, environment={"GPUSHIM_DEVICE": "auto", "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 0, done.stderr


def test_install_before_and_after(python):
    code = """
import gpushim as xp, numpy as np
x = xp.arange(4.0) + 1
assert xp.install(device="host", min_bytes=1 << 20) and xp.location(np.ones(9) + 1) == "foreign"
assert x.sum() == 10 and xp.location(np.asarray(x + 1)) == "pending"
xp.uninstall()
assert not xp.is_installed() and (x + 1).sum() == 14 and xp.location(np.asarray(x + 1)) == "pending"
assert xp.location(np.ones(1 << 20) + 1) == "foreign"
"""
    done = python("-c", code, environment={"GPUSHIM_DEVICE": "host"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("convert", [float, int, complex, bool, operator.index])
def test_a_number_is_read_without_moving_the_array(convert):
    dtype = "i8" if convert in (int, operator.index) else "f8"
    total = xp.arange(1000, dtype=dtype).sum()
    before = gpushim._shim.stats()["memory"]
    assert convert(total) == convert(np.arange(1000, dtype=dtype).sum())
    after = gpushim._shim.stats()["memory"]
    assert on_device(total) and after["fetches"] == before["fetches"] + 1


def test_what_is_no_number_has_numpys_own_error():
    for convert in (float, int, complex, bool, operator.index):
        for a in (np.ones(3), np.ones((1, 1)), np.ones(0), np.ones(()), np.array([1]), np.array("x"), np.array(b"1")):
            outcomes = []
            for array in (a, xp.asarray(a)):
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    try:
                        outcomes.append(convert(array))
                    except Exception as error:
                        outcomes.append((type(error), str(error)))
            assert outcomes[0] == outcomes[1]
