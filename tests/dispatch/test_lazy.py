"""The lazy engine: what is fused into how many programs, what is never computed, and each hazard by name."""

import os
import threading

import gpushim
import numpy as np
import pytest

DEVICE = os.environ.get("GPUSHIM_TEST_DEVICE", "host")


def counters():
    return gpushim._shim.stats()["memory"]


def programs(body):
    """How many programs `body` and the evaluation of what it leaves behind took; its result."""
    gpushim.synchronize()
    before = counters()["programs"]
    result = body()
    gpushim.synchronize()
    return counters()["programs"] - before, result


def device(values):
    """The values in an array that the device owns."""
    array = np.asarray(values) + 0
    gpushim.synchronize()
    return array


def stock(body, *arguments):
    with gpushim.disabled():
        return body(*arguments)


# --- what is fused


def test_a_chain_is_one_program():
    x = device(np.linspace(1, 2, 500))
    n, y = programs(lambda: np.sqrt(x * x + 1.0) - x / 3.0)
    assert n == 1
    np.testing.assert_array_equal(y, stock(lambda x: np.sqrt(x * x + 1.0) - x / 3.0, np.linspace(1, 2, 500)))


def test_what_dies_is_never_computed():
    x = device(np.ones(300))

    def body():
        for _ in range(10):
            with np.errstate(all="ignore"):
                np.exp(x * 1000.0)

    before = counters()["dropped_values"]
    n, _ = programs(body)
    assert n == 0 and counters()["dropped_values"] - before == 20


def test_in_place_updates_are_renames():
    x = device(np.ones(300))

    def body():
        y = x + 1.0
        y *= 2.0
        y -= x
        y /= 4.0
        return y

    n, y = programs(body)
    assert n == 1 and (y == 0.75).all()


def test_several_results_of_one_shape_share_a_program():
    x = device(np.arange(100.0))

    def body():
        a = x * 2.0
        b = a + 1.0
        c = a - 1.0
        return a, b, c

    n, (a, b, c) = programs(body)
    assert n == 1
    with gpushim.disabled():
        np.testing.assert_array_equal(b - c, np.full(100, 2.0))
        np.testing.assert_array_equal(a, np.arange(100.0) * 2)


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_a_map_is_fused_into_the_reduction_at_its_end(axis, keepdims):
    x, y = device(np.arange(120.0).reshape(10, 12)), device(np.arange(120.0).reshape(10, 12)[::-1].copy())
    n, total = programs(lambda: (x * y + 1.0).sum(axis=axis, keepdims=keepdims))
    assert n == 1
    with gpushim.disabled():
        a = np.arange(120.0).reshape(10, 12)
        np.testing.assert_array_equal(total, (a * a[::-1] + 1.0).sum(axis=axis, keepdims=keepdims))


def test_a_value_that_only_a_reduction_reads_stays_pending():
    x = device(np.arange(100.0))
    d = x - 50.0
    assert (d * d).sum() == stock(lambda: float(((np.arange(100.0) - 50) ** 2).sum()))
    assert gpushim.location(d) == "pending"
    assert (d * 2).sum() == -100.0
    # Needed a second time, it was stored; nothing is computed more than twice.
    assert gpushim.location(d) == "device"


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def layer_norm(x):
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)


def z_score(x):
    return (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True)


def centred_in_place(x):
    x = x + 0
    x -= x.mean(axis=1, keepdims=True)
    return x


@pytest.mark.parametrize("function", [softmax, layer_norm, z_score, centred_in_place])
@pytest.mark.parametrize("shape", [(50, 40), (7, 301), (3, 2)])
def test_reductions_that_are_read_by_broadcast_are_one_program(function, shape):
    values = np.random.default_rng(1).normal(size=shape)
    x = device(values)
    n, s = programs(lambda: function(x))
    if DEVICE == "host":  # CUDA's executor runs the programs one by one until the row program was compiled
        assert n == 1
    np.testing.assert_allclose(s, stock(function, values), rtol=1e-12, atol=1e-13)


def test_reductions_over_one_input_fuse_across_other_work():
    values = np.random.default_rng(2).normal(size=(30, 40))
    x, z = device(values), device(np.arange(200.0))

    def body(x, z):
        low = x.min(axis=1)
        a = np.sqrt(z)
        high = x.max(axis=1)
        b = z * 2.0
        total = (x * x).sum(axis=1)
        return low, a, high, b, total

    n, results = programs(lambda: body(x, z))
    if DEVICE == "host":
        assert n == 2  # the three reductions; the two others
    for mine, expected in zip(results, stock(body, values, np.arange(200.0)), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-14)


def test_a_reduction_stays_behind_what_it_reads():
    values = np.random.default_rng(2).normal(size=(30, 40))
    x = device(values)

    def body(x):
        low = x.min(axis=1)
        x[:, 3] = low * 2.0
        high = x.max(axis=1)
        x[...] = 1.0
        return low, high, x.sum(axis=1)

    _, results = programs(lambda: body(x))
    for mine, expected in zip(results, stock(body, values.copy()), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_a_mean_waits_for_its_readers_when_its_sum_is_divided_in_place():
    values = np.random.default_rng(1).normal(size=(6, 40))
    x = device(values)
    mean = x.mean(axis=1)
    total = x.sum(axis=1)
    total += 1.0
    x[...] = 0.0
    np.testing.assert_allclose(mean, stock(lambda a: a.mean(axis=1), values), rtol=1e-14)
    np.testing.assert_allclose(total, stock(lambda a: a.sum(axis=1) + 1.0, values), rtol=1e-14)


def test_a_stencil_is_stored_straight_into_the_target():
    u, new = device(np.arange(400.0).reshape(20, 20) ** 2), device(np.zeros((20, 20)))

    def body():
        new[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])

    n, _ = programs(body)
    assert n == 1
    with gpushim.disabled():
        v = np.arange(400.0).reshape(20, 20) ** 2
        np.testing.assert_array_equal(new[1:-1, 1:-1], 0.25 * (v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:]))


def test_pairwise_distances_are_one_program():
    p, q = np.random.default_rng(3).normal(size=(2, 60, 3))

    def distances(p, q):
        return np.sqrt(((p[:, None, :] - q[None, :, :]) ** 2).sum(axis=-1))

    x, y = device(p), device(q)
    n, d = programs(lambda: distances(x, y))
    assert n == 1
    np.testing.assert_array_equal(d, stock(distances, p, q))


def test_small_foreign_inputs_are_copied_when_recorded_and_wait():
    p = np.frombuffer(bytearray(40 * 3 * 8)).reshape(40, 3)
    q = np.frombuffer(bytearray(30 * 3 * 8)).reshape(30, 3)
    p.flags.writeable = q.flags.writeable = True
    with gpushim.disabled():
        p[...], q[...] = np.random.default_rng(3).normal(size=(40, 3)), 0.5
        expected = np.sqrt(((p[:, None, :] - q[None, :, :]) ** 2).sum(axis=-1))

    def body():
        distances = np.sqrt(((p[:, None, :] - q[None, :, :]) ** 2).sum(axis=-1))
        with gpushim.disabled():
            p[...] = 0.0  # nobody notices a write to this memory: what was recorded has its own copy
        return distances

    n, distances = programs(body)
    assert n == 1
    np.testing.assert_array_equal(distances, expected)


@pytest.mark.parametrize("length", [2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.bool_, np.complex128])
@pytest.mark.parametrize(
    "reduce",
    [
        lambda a: a.sum(axis=1) * 2,
        lambda a: -a.sum(axis=1, initial=3, keepdims=True),
        lambda a: a.prod(axis=1) + 1,
        lambda a: a.mean(axis=1) * 2,
        lambda a: np.where(a.any(axis=1), 2, 3),
        lambda a: a.max(axis=1) + 1,
    ],
)
def test_a_fold_of_a_few_elements_fuses_with_what_follows(length, dtype, reduce):
    values = (np.random.default_rng(5).normal(size=(30, length)) * 3).astype(dtype)
    values[3] = -0.0 if dtype != np.bool_ else False
    x = device(values)
    n, y = programs(lambda: reduce(x))
    assert n == 1 or length == 4  # with conversions, four are too many
    expected = stock(reduce, values)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(np.signbit(y.real), np.signbit(expected.real))


def test_a_fold_of_a_few_elements_sees_the_array_as_it_was():
    x = device(np.arange(60.0).reshape(20, 3))
    total = x.sum(axis=1)
    x[:, 1] = 0.0
    rest = x.sum(axis=1)
    np.testing.assert_array_equal(total, np.arange(60.0).reshape(20, 3).sum(axis=1))
    np.testing.assert_array_equal(rest, total - np.arange(1.0, 60.0, 3.0))


def test_a_fold_of_a_few_elements_of_a_big_program_is_a_fold():
    values = np.random.default_rng(5).uniform(1, 2, size=(40, 4))
    x = device(values)

    def body(a):
        return ((a * 2 + a[::-1] * 3 - a[:, ::-1]) / (a + a[::-1, ::-1])).sum(axis=1)

    n, y = programs(lambda: body(x))
    assert n == 1
    np.testing.assert_allclose(y, stock(body, values), rtol=1e-14)


def test_a_fold_of_a_few_elements_warns_as_a_reduction():
    x = device(np.full((20, 3), 1e308))
    with pytest.warns(RuntimeWarning, match="overflow encountered in reduce"):
        total = x.sum(axis=1)
        gpushim.synchronize()
    assert np.isinf(total).all()


@pytest.mark.filterwarnings("ignore")
def test_the_host_computes_what_the_device_refuses(capfd):
    values = np.random.default_rng(7).normal(size=(50, 40))
    x = device(values)

    def body(x):
        y = np.exp(x) / 3.0
        total = y.sum(axis=1)
        y[:, ::2] = 1.0
        return y, total, (x - x.max(axis=1, keepdims=True))[::-1], np.log(x[0] * 0.0)

    results = body(x)
    gpushim._shim.inject_failure(1, 10**6)
    try:
        seen = [r.tolist() for r in results]
    finally:
        gpushim._shim.inject_failure(0)
    for mine, r, expected in zip(seen, results, stock(body, values), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-13)
        np.testing.assert_allclose(r + 0, expected, rtol=1e-13)
    assert "could not be evaluated" not in capfd.readouterr().err


def test_masks_are_selects():
    x = device(np.arange(-50.0, 50.0))

    def body():
        y = x * 2.0
        y[y < 0] = 0.0
        return np.where(y > 10.0, y, -1.0)

    n, y = programs(body)
    assert n == 1
    with gpushim.disabled():
        z = np.maximum(np.arange(-50.0, 50.0) * 2, 0)
        np.testing.assert_array_equal(y, np.where(z > 10, z, -1))


def test_views_of_pending_values_are_inlined():
    x = device(np.arange(60.0))

    def body():
        y = x * 2.0
        return y.reshape(6, 10)[::-1, 1::3].T + y[:6]

    n, z = programs(body)
    assert n <= 2
    np.testing.assert_array_equal(
        z, stock(lambda: (np.arange(60.0) * 2).reshape(6, 10)[::-1, 1::3].T + np.arange(6.0) * 2)
    )


def test_a_long_chain_is_cut_and_right():
    x = device(np.linspace(0, 1, 200))

    def chain(x):
        y = x
        for i in range(400):
            y = y * 0.5 + x - i
        return y

    n, y = programs(lambda: chain(x))
    assert 2 <= n < 40
    np.testing.assert_array_equal(y, stock(chain, np.linspace(0, 1, 200)))


def test_many_live_values_do_not_run_out_of_registers():
    x = device(np.linspace(0, 1, 64) + 1j)

    def body(x):
        parts = [x * (i + 1) for i in range(30)]
        total = parts[0]
        for p in reversed(parts):
            total = total * p + 1
            total = total / 2
        return total

    np.testing.assert_allclose(programs(lambda: body(x))[1], stock(body, np.linspace(0, 1, 64) + 1j), rtol=1e-12)


def test_doubling_does_not_explode():
    x = device(np.full(10, 1e-30))

    def body(x):
        for _ in range(100):
            x = x + x
        return x

    n, y = programs(lambda: body(x))
    assert n <= 4
    np.testing.assert_array_equal(y, stock(body, np.full(10, 1e-30)))


def test_peak_memory_of_a_chain_is_inputs_and_results():
    n = 1 << 20
    x = device(np.ones(n))
    gpushim._shim.trim(0)
    before = gpushim.memory_info()["device_bytes"]
    y = x
    for i in range(20):
        y = y * 1.5 + i
    gpushim.synchronize()
    assert gpushim.memory_info()["device_bytes"] - before <= 3 * 8 * n


# --- hazards


def test_hazard_in_place_write_after_a_read():
    x = device(np.arange(10.0))
    y = x + 1.0
    x *= 100.0
    np.testing.assert_array_equal(y, stock(lambda: np.arange(10.0) + 1))
    np.testing.assert_array_equal(x, stock(lambda: np.arange(10.0) * 100))


def test_hazard_write_through_a_view_after_a_read():
    x = device(np.arange(10.0))
    view = x[::2]
    y = x + 1.0
    view -= 5.0
    z = x * 2.0
    np.testing.assert_array_equal(y, stock(lambda: np.arange(10.0) + 1))
    assert z.tolist() == [-10.0, 2.0, -6.0, 6.0, -2.0, 10.0, 2.0, 14.0, 6.0, 18.0]


def test_hazard_slice_assignment_after_a_read():
    x = device(np.arange(10.0))
    y = x * 3.0
    x[2:5] = -1.0
    assert y.tolist() == [3.0 * i for i in range(10)]
    assert x.tolist() == [0.0, 1.0, -1.0, -1.0, -1.0, 5.0, 6.0, 7.0, 8.0, 9.0]


def test_hazard_cpu_write_after_a_read():
    x = device(np.arange(10.0))
    y = x * 3.0
    x[3] = 77.0  # NumPy's own C code writes
    with gpushim.disabled():
        x[4] = 78.0
    assert y.tolist() == [3.0 * i for i in range(10)] and x[3] == 77.0 and x[4] == 78.0


def test_hazard_a_pending_value_read_by_another_is_overwritten():
    x = device(np.arange(10.0))
    y = x + 1.0
    z = y * y
    y[...] = 0.0
    assert z.tolist() == [(i + 1.0) ** 2 for i in range(10)] and not y.any()


def test_hazard_overlapping_views():
    x = device(np.arange(10.0))
    x[1:] = x[:-1] + x[1:]
    assert x.tolist() == [0.0, 1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0, 17.0]
    x += x[::-1]
    assert x.tolist() == [17.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0, 17.0]


def test_hazard_overlapping_views_of_a_pending_value():
    x = device(np.arange(6.0)) * 1.0
    x[1:] = x[:-1] * 10.0
    assert x.tolist() == [0.0, 0.0, 10.0, 20.0, 30.0, 40.0]


def test_hazard_partial_update_of_a_pending_value():
    x = device(np.arange(6.0))
    y = x + 1.0
    before = y * 2.0
    y[2:4] = 0.0
    after = y * 2.0
    assert before.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    assert after.tolist() == [2.0, 4.0, 0.0, 0.0, 10.0, 12.0]


def test_hazard_several_partial_updates():
    x = device(np.zeros(6))
    x[:2] = 1.0
    x[1:3] += 5.0
    x[::3] = x[::3] * 2.0 + 1.0
    assert x.tolist() == [3.0, 6.0, 5.0, 1.0, 0.0, 0.0]


def test_hazard_the_same_array_written_twice():
    x, y = device(np.arange(5.0)), device(np.zeros(5))
    np.add(x, 1.0, out=y)
    z = y + 0.0
    np.multiply(x, 2.0, out=y)
    assert y.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0] and z.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_hazard_two_arrays_update_each_other():
    def steps(u, v):
        for _ in range(60):
            u += 0.1 * v
            v -= 0.1 * u
        return u, v

    mine = steps(device(np.zeros(50)), device(np.ones(50)))
    with gpushim.disabled():
        theirs = steps(np.zeros(50), np.ones(50))
        np.testing.assert_array_equal(mine, theirs)


def test_hazard_a_doomed_value_read_after_its_memory_was_given_away():
    x = device(np.arange(8.0))
    y = np.negative(x)
    x[1:] = x[:-1] + x[:1]
    z = np.negative(y)
    del y
    assert x.tolist() == [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert z.tolist() == [float(i) for i in range(8)]


def test_hazard_a_dimension_split_under_a_linked_load():
    x = device(np.arange(24.0).reshape(4, 6) - 12.0)
    y = x.copy()
    w = np.where(device(np.arange(4.0).reshape(4, 1)) > 1, 5.0, y)
    z = np.where(y > 0, w, 0.0)
    with gpushim.disabled():
        a = np.arange(24.0).reshape(4, 6) - 12
        b = np.where(np.arange(4.0).reshape(4, 1) > 1, 5.0, a)
        np.testing.assert_array_equal(z, np.where(a > 0, b, 0.0))


def test_hazard_a_host_write_by_another_thread():
    x = device(np.arange(1000.0))
    y = x * 2.0
    view = x.view()

    def write():
        with gpushim.disabled():
            view[:] = -1.0

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert y.tolist() == [2.0 * i for i in range(1000)] and (x == -1.0).all()


def test_hazard_a_view_whose_geometry_changes_after_it_was_read():
    x = device(np.arange(12.0))
    view = x.reshape(3, 4)
    y = view + 1.0
    view.shape = (4, 3)
    z = view + 1.0
    assert y.shape == (3, 4) and z.shape == (4, 3)
    assert y.ravel().tolist() == z.ravel().tolist() == [i + 1.0 for i in range(12)]


def test_hazard_a_pending_array_is_resized():
    x = device(np.arange(6.0))
    y = x + 1.0
    z = y * 2.0
    y.resize(9, refcheck=False)
    assert y.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0, 0.0]
    assert z.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]


def test_hazard_a_buffer_is_exported_while_a_value_reads_the_array():
    x = device(np.arange(6.0))
    y = x + 1.0
    with memoryview(x) as buffer:
        buffer[0] = 50.0
        z = x + 1.0
    assert y.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] and z[0] == 51.0


def test_hazard_an_input_dies_before_the_value_is_evaluated():
    live = gpushim.memory_info()["live_blocks"]
    x = device(np.arange(6.0))
    y = x + 1.0
    del x
    for _ in range(20):  # its memory must not be given to these
        device(np.full(6, -7.0))
    assert y.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    del y
    assert gpushim.memory_info()["live_blocks"] == live


def test_hazard_a_pending_reduction_dies_before_its_reader():
    x = device(np.arange(12.0).reshape(3, 4))
    y = x - x.max(axis=1, keepdims=True)
    assert y.tolist() == [[-3.0, -2.0, -1.0, 0.0]] * 3


# --- threads, warnings


def test_threads_record_and_read_at_once():
    shared = device(np.arange(512.0))
    wrong = []

    def work(seed):
        for i in range(150):
            mine = shared * float(seed) + i
            mine += 1.0
            if i % 3 == 0 and mine[7] != 7.0 * seed + i + 1:
                wrong.append((seed, i))
            if i % 5 == 0 and float(np.asarray(memoryview(mine))[9]) != 9.0 * seed + i + 1:
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_each_function_of_a_fused_program_warns_by_its_own_name():
    x = device(np.array([0.0, 1.0]))
    with pytest.warns(RuntimeWarning) as seen:
        y = np.log(x) + np.sqrt(x - 2.0) + 1.0 / x  # noqa: F841 it must be computed
        gpushim.synchronize()
    assert {str(w.message) for w in seen} == {
        "divide by zero encountered in log",
        "invalid value encountered in sqrt",
        "divide by zero encountered in divide",
    }


def test_strict_errors_come_at_their_statement():
    x = device(np.array([0.0, 1.0]))
    y = x * 2.0
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero encountered in divide"):
        1.0 / y


def test_the_graph_can_be_drawn():
    x = device(np.arange(4.0))
    y = np.sqrt(x + 1.0)
    drawn = gpushim._shim.graph()
    assert drawn.startswith("digraph") and "sqrt" in drawn and "add" in drawn and "->" in drawn
    del y
    assert "sqrt" not in gpushim._shim.graph()


def test_hazard_work_at_once_overwrites_a_pending_value_that_another_one_reads():
    def body(x):
        x = x + 0.0
        y = x * 2.0
        x.sort()
        z = x + 1.0
        x[np.array([0, 2])] = -1.0
        return x, y, z

    x = np.array([3.0, 1, -2, 9, 5, 0])
    for mine, expected in zip(body(x), stock(body, x), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_the_pending_graph_shows_values_and_evaluates_nothing():
    x = device(np.arange(5.0))
    gpushim.synchronize()
    y = np.sqrt(x * 2.0)
    text = gpushim.pending_graph()
    assert text.startswith("digraph") and "multiply" in text and "sqrt" in text and "shape=box" in text
    assert gpushim.location(y) == "pending"
    gpushim.synchronize()
    assert "sqrt" not in gpushim.pending_graph()


# ---- programs that were fused before


def found(body):
    """The result of the body, and how many of its programs were fused before."""
    gpushim.synchronize()
    before = counters()["found_programs"]
    result = body()
    gpushim.synchronize()
    return result, counters()["found_programs"] - before


def test_a_program_is_found_again_for_other_arrays_and_other_constants():
    def body(x, y, c):
        return np.sqrt(x * y + c) - 1.5

    for k, c in enumerate((2.0, 3.25, 7.0)):
        x, y = device(np.arange(8.0) + k), device(np.arange(8.0)[::-1])
        mine, n = found(lambda x=x, y=y, c=c: body(x, y, c))
        assert n == (k > 0)
        np.testing.assert_array_equal(mine, stock(body, x, y, c))


def test_a_program_is_not_found_where_arrays_coincide_differently():
    def body(x, y, z):
        return (x + y) * z - x

    x, y, z = (device(np.arange(9.0) + k) for k in range(3))
    for arguments in ((x, y, z), (x, x, z), (x, y, x), (z, y, y), (x, x, x), (y, z, x)):
        mine, _ = found(lambda arguments=arguments: body(*arguments))
        np.testing.assert_array_equal(mine, stock(body, *arguments))


def test_a_program_is_not_found_where_constants_coincide_differently():
    def body(x, a, b):
        return (x + a) * b + a

    x = device(np.arange(9.0))
    for constants in ((2.0, 3.0), (3.0, 3.0), (3.0, 2.0), (0.0, -0.0), (-0.0, 0.0), (2.0, 2.0)):
        mine, _ = found(lambda constants=constants: body(x, *constants))
        np.testing.assert_array_equal(mine, stock(body, x, *constants))


def test_a_program_is_not_found_where_views_lie_differently():
    def body(x, i, j):
        t = x * 2.0
        return t[i : i + 5] + x[j : j + 5]

    x = device(np.arange(12.0))
    for i, j in ((0, 1), (1, 0), (2, 2), (0, 0), (7, 3), (1, 1), (3, 7)):
        mine, _ = found(lambda i=i, j=j: body(x, i, j))
        np.testing.assert_array_equal(mine, stock(body, x, i, j))


def test_found_programs_report_events_by_function():
    for _ in range(3):
        x = device(np.array([1.0, 0.0, -1.0]))
        with pytest.warns(RuntimeWarning) as caught:
            y = np.log(x), 1.0 / x
            gpushim.synchronize()
        texts = {str(w.message) for w in caught}
        assert texts == {
            "divide by zero encountered in log",
            "invalid value encountered in log",
            "divide by zero encountered in divide",
        }
        del y
