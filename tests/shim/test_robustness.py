"""Processes, threads, signals and the end of the interpreter."""

import gc
import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading

import gpushim
import numpy as np
import numpy.random  # makes arrays of its own when first used
import pytest
from device_arrays import check_script, device_arange, on_device, run_script

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    # Python 3.12 and later warn of fork in a process with threads: that is what is tested here.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


# --- fork


def in_child(check):
    """Runs check() in a forked child; fails unless it returned True."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if check() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("n", [16, 5_000, 700_000])
def test_child_reads_and_computes(n):
    a, z = device_arange(n), np.zeros(n)
    shared = on_device(np.ones(n))
    assert shared[0] == 1.0

    def check():
        b = a * 2 + shared
        fresh = np.zeros(n)
        fresh += b
        return b[n - 1] == 2 * n - 1 and fresh.sum() == n * n and not z.any()

    in_child(check)
    on_device(a)
    in_child(check)
    assert a[n - 1] == n - 1 and not z.any()


def test_writes_stay_in_their_process():
    a = device_arange(5000)
    read, write = os.pipe()

    def check():
        a[:] = -1.0
        os.read(read, 1)
        return (a == -1.0).all()

    pid = os.fork()
    if pid == 0:
        os._exit(0 if check() else 1)
    a += 1
    os.write(write, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert a.tobytes() == np.arange(1.0, 5001.0).tobytes()
    os.close(read)
    os.close(write)


def test_child_allocates_frees_exports_and_forks_again():
    a = device_arange(5000)
    m = memoryview(a)

    def grandchild():
        return a.sum() == 5000 * 4999 / 2

    def check():
        nonlocal a
        arrays = [np.full(1000, i) for i in range(200)]
        del arrays[::2]
        grown = np.fromiter(range(100_000), float)
        read, write = os.pipe()
        os.write(write, grown[:100])
        with open(read, "rb", buffering=0) as f:
            f.readinto(grown)
        m.release()
        in_child(grandchild)
        a.resize(9000, refcheck=False)
        gc.collect()
        return a[4999] == 4999.0 and not a[5000:].any() and grown[99] == 99.0

    in_child(check)
    assert m[4999] == 4999.0
    m.release()
    on_device(a)


def square_sum(a):
    return float((a * a).sum())


def test_fork_pool():
    parts = [on_device(np.full(20_000, float(i))) for i in range(8)]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert pool.map(square_sum, parts) == [20_000.0 * i * i for i in range(8)]
        big = pool.map(np.sqrt, parts)
    assert all((b == np.sqrt(i)).all() for i, b in enumerate(big))
    on_device(parts[3])


def test_fork_process_exit_codes():
    a = device_arange(5000)
    context = multiprocessing.get_context("fork")

    def fail():
        sys.exit(3 if a[3] == 3.0 else 4)

    process = context.Process(target=fail)
    process.start()
    process.join()
    assert process.exitcode == 3


def test_forked_child_that_exits_in_the_ordinary_way():
    out = check_script("""
        import os, sys, atexit
        a = device_arange(5000)
        atexit.register(lambda: print(os.getpid() == parent, a[4999], flush=True))
        parent = os.getpid()
        pid = os.fork()
        if pid:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    """, "-W", "ignore")  # fmt: skip
    assert out.splitlines() == ["False 4999.0", "True 4999.0"]


@pytest.mark.skipif(
    "libtsan" in os.environ.get("LD_PRELOAD", ""), reason="the thread sanitizer makes a fork of a vfork"
)
def test_subprocess_leaves_arrays_on_the_device():
    a = device_arange(5000)
    done = subprocess.run([sys.executable, "-c", "print(input())"], input=b"7", capture_output=True)
    assert done.stdout == b"7\n"
    assert gpushim.location(a) != "host" and a[7] == 7.0


# --- threads


def run_threads(targets):
    failures = []

    def guarded(target):
        try:
            target()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(t,)) for t in targets]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures


def test_readers_of_an_array_that_the_device_keeps_taking():
    a = device_arange(300_000)
    digest = hashlib.sha256(a).digest()
    stop = threading.Event()

    def reader():
        while not stop.is_set():
            assert hashlib.sha256(a).digest() == digest  # without the GIL
            assert a[::1000].sum() == 44_850_000
            assert np.sort(a)[299_999] == 299_999.0
            assert a.tobytes()[-8:] == np.float64(299_999).tobytes()

    def device():
        try:
            for _ in range(200):
                np.add(a, 0, out=a)
        finally:
            stop.set()

    run_threads([reader] * 7 + [device])


def test_private_arrays():
    def worker(seed):
        def work():
            rng = np.random.default_rng(seed)
            total, reference = np.zeros(3000), np.zeros(3000)
            for _ in range(100):
                step = rng.integers(0, 100, 3000).astype(float)
                total += step
                np.copyto(reference, reference.tolist() + step)
                total[seed] += 1
                reference[seed] += 1
            assert total.tobytes() == reference.tobytes()

        return work

    run_threads([worker(i) for i in range(8)])


def test_disjoint_writers():
    a = device_arange(80_000)
    a -= a

    def writer(i):
        part = a[i * 10_000 : (i + 1) * 10_000]

        def work():
            for k in range(100):
                if i % 2:
                    part[k] = k + 1
                else:
                    np.add(part, 1, out=part)

        return work

    run_threads([writer(i) for i in range(8)])
    for i in range(8):
        part = a[i * 10_000 : (i + 1) * 10_000]
        assert (part[:100].tolist() == list(range(1, 101))) if i % 2 else (part == 100).all()


def test_threads_that_allocate_export_and_free():
    def work():
        for i in range(200):
            a = np.full(500 + 40 * i, float(i))
            m = memoryview(a)
            b = a + 1
            assert m[i] == i and b[i] == i + 1
            del a
            b.resize(2 * b.size, refcheck=False)
            assert b[i] == i + 1 and m[0] == i

    run_threads([work] * 8)


# --- signals

SEGFAULT = """
    import ctypes
    a = device_arange(5000)
    assert a[4999] == 4999.0
    on_device(a)
    assert a[17] == 17.0
    on_device(a)
    {extra}
    ctypes.string_at(0)
"""


def assert_reported(done):
    assert done.returncode == -signal.SIGSEGV, (done.returncode, done.stderr)
    assert done.stderr.count("Fatal Python error: Segmentation fault") == 1
    assert "string_at" in done.stderr


def segfault(extra="", before=""):
    install = "# install by hand\n" + before + "\n"
    install += "import gpushim\ngpushim.install(device='host', min_bytes=0)\nfrom device_arrays import *\n"
    return install + textwrap.dedent(SEGFAULT).format(extra=extra)


def test_segfault_is_reported_by_faulthandler_of_the_command_line():
    assert_reported(run_script(segfault(), "-X", "faulthandler"))


def test_segfault_is_reported_by_faulthandler_enabled_before():
    assert_reported(run_script(segfault(before="import faulthandler; faulthandler.enable()")))


@pytest.mark.parametrize("times", [1, 3])
def test_segfault_is_reported_by_faulthandler_enabled_after(times):
    more = "import faulthandler; " + "faulthandler.enable(); " * times + "assert a[5] == 5.0"
    assert_reported(run_script(segfault(more)))


def test_segfault_is_reported_by_faulthandler_enabled_before_and_after():
    more = "import faulthandler; faulthandler.disable(); assert a[5] == 5.0; on_device(a); faulthandler.enable()"
    assert_reported(run_script(segfault(more, before="import faulthandler; faulthandler.enable()")))


@pytest.mark.parametrize("before", ["", "import faulthandler; faulthandler.enable()"])
def test_segfault_without_faulthandler(before):
    more = "import faulthandler; faulthandler.disable(); assert a[5] == 5.0"
    done = run_script(segfault(more, before))
    assert done.returncode == -signal.SIGSEGV and done.stderr == ""


def test_write_to_read_only_memory_still_kills():
    script = """
        import mmap, ctypes, faulthandler
        faulthandler.enable()
        a = device_arange(5000)
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ)
        ctypes.memset(np.frombuffer(page, np.uint8).ctypes.data, 1, 8)
    """
    done = run_script(script)
    assert done.returncode == -signal.SIGSEGV and done.stderr.count("Fatal Python error") == 1


def test_faulthandler_in_this_process():
    """pytest enabled it long ago; tests do it again and again."""
    import faulthandler

    for _ in range(3):
        a = device_arange(5000)
        with open(os.devnull, "w") as sink:
            faulthandler.enable(file=sink)
            assert a[7] == 7.0
            on_device(a)
            faulthandler.disable()
            assert a[8] == 8.0
            on_device(a)
        faulthandler.enable(file=sys.__stderr__)
        assert a[9] == 9.0


def test_signal_handlers_of_the_user():
    out = check_script("""
        import signal
        a = device_arange(5000)
        for handler in (signal.SIG_IGN, signal.SIG_DFL, lambda *_: None):
            signal.signal(signal.SIGSEGV, handler)
            assert signal.getsignal(signal.SIGSEGV) is handler
            assert a[7] == 7.0
            on_device(a)
        print("served")
    """)
    assert out == "served\n"


# --- the end of the interpreter


def test_exit_with_arrays_on_the_device():
    out = check_script("""
        import atexit

        class Watch:
            def __init__(self, name):
                self.array = device_arange(5000)
                self.name = name
            def __del__(self):
                grown = self.array + 1
                print(self.name, grown[4999], bytes(self.array[:1]) == bytes(8))

        a, watch, z = device_arange(700_000), Watch("global"), np.zeros(5000)
        cycle = [Watch("cycle")]
        cycle.append(cycle)
        exported = memoryview(a)
        atexit.register(lambda: print("later", (on_device(np.arange(9.0)) + a[:9])[8], z.any()))
        print("end")
    """)
    assert sorted(out.splitlines()) == ["cycle 5000.0 True", "end", "global 5000.0 True", "later 16.0 False"]


def test_exit_callbacks_registered_before_install():
    out = check_script("""
        # install by hand
        import atexit
        import numpy as np
        keep = []
        def last():
            a, z = keep
            a += 1
            b = np.zeros(5000)
            b += a
            grown = np.fromiter(range(5000), float)
            grown.resize(9000, refcheck=False)
            print("last", b[4999], z.any(), grown[4999], bytes(memoryview(b)[:1]))
        atexit.register(last)
        import gpushim
        gpushim.install(device="host", min_bytes=0)
        from device_arrays import device_arange
        keep += [device_arange(5000), np.zeros(5000)]
    """)
    assert out.startswith("last 5000.0 False 4999.0 ")


def test_exit_by_error_and_by_code():
    done = run_script("import sys\na = device_arange(5000)\nsys.exit(5)")
    assert (done.returncode, done.stderr) == (5, "")
    done = run_script("a = device_arange(5000)\nb = a + 1\n1 / 0")
    assert done.returncode == 1 and done.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert run_script("import os\na = device_arange(5000)\nos._exit(6)").returncode == 6


def test_exit_with_threads_at_work():
    check_script("""
        import threading
        a = device_arange(50_000)
        def work():
            while True:
                np.add(a, 0, out=a)
                a[7]
        for _ in range(2):
            threading.Thread(target=work, daemon=True).start()
        import time
        time.sleep(0.2)
    """)


def test_exit_with_threads_inside_numpy():
    """NumPy asks for the GIL below our hooks, and Python ends the thread there."""
    for _ in range(3):
        check_script("""
            import threading
            a = device_arange(50_000)
            def work():
                while True:
                    b = np.add(a, 1, dtype=np.longdouble)
                    np.sort(b)
                    b + b
            for _ in range(4):
                threading.Thread(target=work, daemon=True).start()
            import time
            time.sleep(0.05)
        """)


def test_install_and_uninstall_many_times():
    gpushim.uninstall()
    try:
        for _ in range(5):
            gpushim.install(device="host", min_bytes=0)
            a = device_arange(5000)
            gpushim.uninstall()
            assert gpushim.location(a) in ("host", "foreign") and a[7] == 7.0
    finally:
        gpushim.install(device="host", min_bytes=0)


def test_objects_are_visited_while_other_threads_load_some():
    """dlopen and dl_iterate_phdr take the loader's two locks in an order that is not ours to choose: this hung."""
    check_script(
        """
        import ctypes, importlib.util, sys, threading, time

        loader = ctypes.CDLL(None)
        loader.dlopen.restype, loader.dlopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
        loader.dlclose.argtypes = [ctypes.c_void_p]
        names = [name for name in ("_heapq", "_curses", "_lsprof", "_xxtestfuzz", "_testbuffer") if name not in sys.modules]
        files = [spec.origin.encode() for spec in map(importlib.util.find_spec, names) if spec and spec.has_location]
        assert files
        end = time.monotonic() + 3

        def load():
            while time.monotonic() < end:
                for file in files:
                    loader.dlclose(loader.dlopen(file, 2))

        sys.setswitchinterval(1e-6)
        threads = [threading.Thread(target=load, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        while time.monotonic() < end:
            ctypes.CDLL(None)  # then all objects that are new are visited
        for thread in threads:
            thread.join()
    """,
        timeout=60,
    )


@pytest.mark.parametrize(
    "call", ["np.sort(a)", "np.cumsum(a)", "a @ a", "a[a > 1]", "a.astype(bool).any()", "a[600]", "a.item(600)"]
)
def test_a_call_whose_operand_went_with_the_device_raises(call):
    """NumPy, which runs what the device refuses, would end the process at its first look at the operand."""
    done = run_script(
        """
        import ctypes, struct

        value = 1.2345678901234567
        a = np.full(1 << 20, value)
        a += 0
        b = np.full(5, 1.0)
        gpushim.synchronize()
        assert gpushim.location(a) == "device", gpushim.location(a)
        memory, needle = open("/proc/self/mem", "rb", 0), struct.pack("d", value) * (1 << 12)
        protect, hits = ctypes.CDLL(None, use_errno=True).mprotect, 0
        for line in open("/proc/self/maps"):
            low, high = (int(edge, 16) for edge in line.split()[0].split("-"))
            if "rw" not in line or not a.nbytes <= high - low < 1 << 28 or "[" in line:  # a sanitizer has terabytes
                continue
            memory.seek(low)
            at = memory.read(high - low).find(needle)
            if at >= 0:
                page = (low + at + 4095) & ~4095
                assert protect(ctypes.c_void_p(page), ctypes.c_size_t(4096), 0) == 0
                hits += 1
        assert hits == 1, hits
        gpushim._shim.inject_failure(1, 10**6)
        for call in (lambda: CALL, lambda: a + 1):
            try:
                call()
                raise SystemExit("no error")
            except RuntimeError as error:
                assert "values are lost" in str(error), error
        gpushim._shim.inject_failure(0)
        assert gpushim.location(a) == "device"
        assert (b + 1).tolist() == [2.0] * 5
    """.replace("CALL", call)
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stderr.count("\n") == 1 and "values that only it held are lost" in done.stderr, done.stderr
