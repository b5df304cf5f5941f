"""Runs files in processes of their own: several at a time, each test with a limit, going on behind one that crashes.

What happened is kept in the output folder as it happens, so that a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from gpushim import _shim
from gpushim.conformance import suites
from gpushim.conformance.suites import File, Options

BAD = frozenset({"failed", "crash", "hang"})
#: A file in which so many tests end the process is given up.
MOST_CRASHES = 40
_TIME_WAS_UP = "time was up; run again to go on"
#: Time for imports and collection, before the first test.
START_SECONDS = 300


@dataclass
class Run:
    """What happened to the tests of a file in one mode. A test: outcome, message, seconds, device_calls, host_calls."""

    tests: dict[str, dict] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    blocks_left: int = 0
    seconds: float = 0.0

    def add(self, other: Run) -> None:
        self.tests.update(other.tests)
        self.problems += other.problems
        self.blocks_left += other.blocks_left
        self.seconds += other.seconds


def device_info(device: str) -> dict | None:
    """What ``python -m gpushim --info`` says; None where the device cannot be used. The device is not taken here."""
    command = [sys.executable, "-m", "gpushim", "--device", device, "--info"]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def run_all(files: list[File], modes: list[str], options: Options, say) -> dict[tuple[File, str], Run]:
    """Every file in every mode, and under stock NumPy what did not pass in one of them."""
    jobs = [
        (file, mode, (i, n))
        for file in sorted(files, key=lambda f: -f.path.stat().st_size)
        for mode in modes
        for n in [suites.parts(file, options)]
        for i in range(n)
    ]
    # Large files of all modes first: the last to end are small.
    runs: dict[tuple[File, str], Run] = {}
    lock = threading.Lock()
    progress = _Progress(len(jobs), say)

    def work(file: File, mode: str, part: tuple[int, int]) -> None:
        late = time.monotonic() > options.deadline
        run = Run(problems=[_TIME_WAS_UP]) if late else run_part(file, mode, part, options)
        with lock:
            runs.setdefault((file, mode), Run()).add(run)
        progress.finished(file, mode, part, run)

    _work_off(work, jobs, options.jobs)

    wanted = {}
    for (file, _), run in runs.items():
        doubtful = {test for test, result in run.tests.items() if result["outcome"] in BAD | {"skipped"}}
        wanted.setdefault(file, set()).update(doubtful)
    progress.more(sum(map(bool, wanted.values())))

    def work_stock(file: File, tests: set[str]) -> None:
        run = run_stock(file, tests, options)
        _compare_in_company(file, run, [runs[file, mode] for mode in modes], options)
        with lock:
            runs[file, "stock"] = run
        if tests:
            progress.finished(file, "stock", (0, 1), run)

    _work_off(work_stock, wanted.items(), options.jobs)
    return runs


class _InterruptedError(Exception):
    """The run was: what is under way ends without a result."""


_interrupted = threading.Event()


def _work_off(work, items, jobs: int) -> None:
    """work(*item) for every item, in threads. Ctrl-C ends what runs, and nothing more begins."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, *item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:
            _interrupted.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Progress:
    def __init__(self, total: int, say) -> None:
        self._total, self._done, self._say = total, 0, say
        self._start = time.monotonic()

    def more(self, count: int) -> None:
        self._total += count

    def finished(self, file: File, mode: str, part: tuple[int, int], run: Run) -> None:
        self._done += 1
        bad = sum(test["outcome"] in BAD for test in run.tests.values())
        name = file.name + (f" {part[0] + 1}/{part[1]}" if part[1] > 1 else "")
        self._say(
            f"[{self._done}/{self._total}, {time.monotonic() - self._start:.0f} s] {mode} {name}: "
            f"{len(run.tests)} tests, {bad} not passed, {run.seconds:.0f} s"
        )


def run_part(file: File, mode: str, part: tuple[int, int], options: Options) -> Run:
    """Runs a part of a file, or reads what an earlier run of the same kind kept."""
    kept = _kept(file, mode, part, options)
    if not options.fresh and (run := _read_kept(kept)):
        return run
    run = _run_program(file, mode, options) if file.suite == "cases" else _run_pytest(file, mode, part, None, options)
    if _TIME_WAS_UP not in run.problems:
        _keep(kept, run)
    return run


def run_stock(file: File, tests: set[str], options: Options) -> Run:
    """The outcomes of some tests under stock NumPy, which an earlier run may have kept."""
    kept = _kept(file, "stock", (0, 1), options)
    run = _read_kept(kept) or Run()
    missing = tests - run.tests.keys()
    if missing:
        run.add(
            _run_program(file, "stock", options)
            if file.suite == "cases"
            else _run_pytest(file, "stock", (0, 1), missing, options)
        )
        _keep(kept, run)
    run.tests = {test: result for test, result in run.tests.items() if test in tests}
    return run


def _compare_in_company(file: File, stock: Run, ours: list[Run], options: Options) -> None:
    """A test that fails under gpushim and passes alone under stock NumPy may owe its failure to the tests before it:
    such a file runs under stock NumPy once more, whole, and what fails there too is no difference."""
    bad = {test for run in ours for test, result in run.tests.items() if result["outcome"] in BAD}
    suspects = {test for test in bad if stock.tests.get(test, {}).get("outcome") == "passed"}
    if not suspects or file.suite == "cases":
        return
    whole = _run_pytest(file, "stock", (0, 1), {test for run in ours for test in run.tests}, options)
    stock.tests.update(
        (test, whole.tests[test]) for test in suspects & whole.tests.keys() if whole.tests[test]["outcome"] in BAD
    )


# Keeping.


def fingerprint(mode: str, options: Options) -> str:
    """What a kept result depends on, besides the file: versions, the extension, settings."""
    import numpy

    parts = [numpy.__version__, sys.version, str(options.full), str(options.sample), options.keyword]
    if mode != "stock":
        state = os.stat(_shim.__file__)
        parts += [options.device, f"{state.st_size} {state.st_mtime_ns}"]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _kept(file: File, mode: str, part: tuple[int, int], options: Options) -> Path:
    name = f"{file.name.removesuffix('.py').replace('/', '.')}.{part[0]}-{part[1]}.json"
    return options.output / "runs" / f"{mode}-{fingerprint(mode, options)}" / name


def _read_kept(path: Path) -> Run | None:
    try:
        return Run(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _keep(path: Path, run: Run) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(vars(run)), encoding="utf-8")
    new.replace(path)


# Processes.


def _environment(file: File, options: Options) -> dict[str, str]:
    threads = str(max(1, (os.cpu_count() or 1) // options.jobs))
    # Options for another run of pytest are not for these.
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GPUSHIM_", "PYTEST_")) or name == "GPUSHIM_CACHE_DIR"
    }
    return {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, **variables, **dict(file.environment)}


def _run_pytest(file: File, mode: str, part: tuple[int, int], only: set[str] | None, options: Options) -> Run:
    """Runs tests, starting anew behind each one that ends the process."""
    run = Run()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpushim-conformance-") as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "only").write_text("".join(f"{test}\n" for test in only or ()), encoding="utf-8")
        done, record, log = folder / "done", folder / "record", folder / "log"
        command = suites.pytest_command(file, mode, part, options, folder)
        record.touch()
        for _ in range(MOST_CRASHES + 1):
            done.write_text("".join(f"{test}\n" for test in run.tests), encoding="utf-8")
            position = record.stat().st_size
            deadline = options.deadline if mode != "stock" else float("inf")
            environment = _environment(file, options)
            status, hung = _watch(command, folder, record, log, environment, options.test_seconds, deadline)
            stopped_in, ended = _read_record(record, position, run)
            if ended:
                break
            if time.monotonic() > deadline:
                run.problems.append(_TIME_WAS_UP)
                break
            tail = _ending(log.read_text(errors="replace"))
            if stopped_in is None:
                run.problems.append(f"pytest ended with status {status}: {tail[-1500:]}")
                break
            run.tests[stopped_in] = {
                "outcome": "hang" if hung else "crash",
                "message": f"exit status {status}\n{tail}",
                "device_calls": 0,
                "host_calls": {},
                "seconds": options.test_seconds if hung else 0.0,
            }
        else:
            run.problems.append(f"given up after {MOST_CRASHES} tests that ended the process")
    run.seconds = time.monotonic() - start
    return run


def _ending(log: str) -> str:
    """What a process said last: where faulthandler found it, or else the end."""
    start = log.rfind("Fatal Python error")
    return log[start : start + 3000] if start >= 0 else log[-3000:]


def _watch(
    command, folder: Path, record: Path, log: Path, environment: dict, test_seconds: float, deadline: float
) -> tuple[int | None, bool]:
    """Runs a command whose record must grow; the exit status, and whether it was killed because it did not. At the
    deadline it is killed as well."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            size, since, limit = 0, time.monotonic(), START_SECONDS
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(timeout=0.5), False
                if _interrupted.is_set():
                    raise _InterruptedError
                if time.monotonic() > deadline:
                    return None, False
                now = record.stat().st_size
                if now != size:
                    size, since, limit = now, time.monotonic(), test_seconds
                elif time.monotonic() - since > limit:
                    # faulthandler writes where it hangs.
                    process.send_signal(signal.SIGABRT)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=5)
                    return process.poll(), True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _read_record(record: Path, position: int, run: Run) -> tuple[str | None, bool]:
    """Adds what the record tells from a position on; the test that was started and did not finish, and whether pytest
    came to its end."""
    started, ended, blocks = None, False, 0
    with record.open("rb") as file:
        file.seek(position)
        for line in file:
            event = json.loads(line)
            kind = event.pop("event")
            if kind == "start":
                started = event["id"]
            elif kind == "finish":
                run.tests[event.pop("id")] = event
                started = None
            elif kind == "collected":
                blocks = event["live_blocks"]
            else:
                ended = True
                run.blocks_left += event["live_blocks"] - blocks
    return started, ended


def _run_program(file: File, mode: str, options: Options) -> Run:
    start = time.monotonic()
    result = {"outcome": "passed", "message": "", "device_calls": 0, "host_calls": {}}
    with tempfile.TemporaryDirectory(prefix="gpushim-conformance-") as folder:
        command = suites.program_command(file, mode, options)
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=_environment(file, options),
                capture_output=True,
                text=True,
                timeout=options.test_seconds,
            )
        except subprocess.TimeoutExpired:
            result.update(outcome="hang", message=f"longer than {options.test_seconds} s")
        else:
            lines = done.stderr.strip().splitlines()
            if lines and lines[-1].startswith('{"summary"'):
                summary = json.loads(lines.pop())["summary"]
                result.update(device_calls=summary["device_calls"], host_calls=summary["reasons"])
            if done.returncode != 0:
                outcome = "crash" if done.returncode < 0 else "failed"
                result.update(outcome=outcome, message="\n".join(lines[-1:] + lines[-12:-1]))
    result["seconds"] = time.monotonic() - start
    return Run(tests={file.name: result}, seconds=result["seconds"])
