"""What is run: test files and programs, and the commands that run them.

A *mode* is how gpushim is set for a run: "stock" (NumPy as it is), "lazy" and "eager" (everything goes to the device),
"default" (the default threshold).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

SUITES = ("numpy", "array-api", "cases")
#: Parts of NumPy with a folder of tests; "" is numpy/tests.
NUMPY_PARTS = ("_core", "lib", "linalg", "fft", "random", "ma", "matrixlib", "polynomial", "")
#: The files of the short run (--smoke): one that reaches every seam.
SMOKE = (
    "test_umath",
    "test_ufunc",
    "test_numeric",
    "test_indexing",
    "test_mem_overlap",
    "test_multiarray",
    "test_linalg",
    "test_pocketfft",
)
MODES: dict[str, list[str]] = {
    "stock": ["--gpushim-device=off"],
    "lazy": ["--gpushim-min-bytes=0"],
    "eager": ["--gpushim-min-bytes=0", "--gpushim-eager"],
    "default": [],
}
#: The same for programs, as arguments of ``python -m gpushim``.
PROGRAM_MODES: dict[str, list[str]] = {
    "lazy": ["--min-bytes=0"],
    "eager": ["--min-bytes=0", "--eager"],
    "default": [],
}
#: A file's tests are split into parts of about so many bytes of source, to keep all processors busy.
BYTES_A_PART = 30_000


class SuiteMissingError(Exception):
    """A suite that is kept elsewhere was not found; the text says what to give."""


@dataclass(frozen=True)
class File:
    """A file of tests, or a program ("cases")."""

    suite: str
    path: Path
    root: Path
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return self.path.relative_to(self.root).as_posix()


@dataclass(frozen=True)
class Options:
    """How the files are run."""

    device: str
    sample: int = 1
    full: bool = False
    keyword: str = ""
    test_seconds: float = 180
    jobs: int = 1
    output: Path = field(default_factory=lambda: Path("conformance-results"))
    fresh: bool = False
    #: By time.monotonic(): then what runs is ended, and what waits is left.
    deadline: float = float("inf")


def numpy_files(names: Iterable[str]) -> list[File]:
    numpy = Path(importlib.util.find_spec("numpy").origin).parent
    folders = [numpy / part / "tests" for part in NUMPY_PARTS]
    names = list(names)
    if not names:
        paths = [path for folder in folders for path in sorted(folder.glob("test_*.py"))]
        return [File("numpy", path, numpy.parent) for path in paths]
    files = []
    for name in names:
        paths = _named(name, folders, numpy)
        found = [File(_package(path, numpy.parent), path, numpy.parent) for path in paths] or package_files(name)
        if not found:
            raise SuiteMissingError(f"{name} is neither among the tests of {numpy} nor a package with tests")
        files += found
    return files


def _package(path: Path, root: Path) -> str:
    return path.relative_to(root).parts[0]


def package_files(name: str) -> list[File]:
    """The tests of another installed package, such as scipy.linalg: those in its folder tests, with its subpackages'."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(next(iter(spec.submodule_search_locations))).resolve()
    root = folder.parents[name.count(".")]
    return [File(name.partition(".")[0], path, root) for path in sorted(folder.glob("**/tests/test_*.py"))]


def _named(name: str, folders: list[Path], numpy: Path) -> list[Path]:
    """A file by name or path (below the installed packages), or a part of NumPy such as linalg or lib/tests."""
    if name in NUMPY_PARTS:
        return sorted((numpy / name / "tests").glob("test_*.py"))
    path = Path(name if name.endswith(".py") else name + ".py")
    for folder in (*folders, numpy.parent, numpy):
        if (folder / path).is_file():
            return [(folder / path).resolve()]
    return []


def array_api_files(checkout: Path | None, full: bool) -> list[File]:
    checkout = checkout or _from_environment("GPUSHIM_ARRAY_API_TESTS")
    if checkout is None or not (checkout / "array_api_tests").is_dir():
        raise SuiteMissingError(
            "the array API suite is a checkout of https://github.com/data-apis/array-api-tests (with its submodule): "
            "--array-api-tests FOLDER or GPUSHIM_ARRAY_API_TESTS"
        )
    lacking = [name for name in ("pytest_jsonreport", "hypothesis", "ndindex") if not importlib.util.find_spec(name)]
    if lacking:
        file = checkout / "requirements.txt"
        raise SuiteMissingError(f"no {', '.join(lacking)} for the array API suite: python -m pip install -r {file}")
    checkout = checkout.resolve()
    arguments = ("--max-examples", "1000" if full else "20", "--derandomize", "--disable-deadline")
    environment = (("ARRAY_API_TESTS_MODULE", "numpy"),)
    paths = sorted((checkout / "array_api_tests").glob("test_*.py"))
    return [File("array-api", path, checkout, arguments, environment) for path in paths]


def case_files(folder: Path | None) -> list[File]:
    shared = _from_environment("GPUSHIM_SHARED")
    folder = folder or (shared and shared / "cases")
    if folder is None or not folder.is_dir():
        raise SuiteMissingError(
            "programs that assert NumPy's behaviour: --cases FOLDER, or GPUSHIM_SHARED with cases/ in it"
        )
    folder = folder.resolve()
    return [File("cases", path, folder) for path in sorted(folder.glob("*.py"))]


def _from_environment(name: str) -> Path | None:
    return Path(os.environ[name]) if os.environ.get(name) else None


def parts(file: File, options: Options) -> int:
    if file.suite in ("array-api", "cases") or options.jobs == 1 or options.sample > 1:
        return 1
    return max(1, min(options.jobs, file.path.stat().st_size // BYTES_A_PART))


def pytest_command(file: File, mode: str, part: tuple[int, int], options: Options, folder: Path) -> list[str]:
    """Runs a part of a file's tests; the folder holds the names of those to leave out, and receives the record."""
    own = file.root / "pytest.ini"
    marks = ["-m", "not slow"] if file.suite != "array-api" and not options.full else []
    device = [] if mode == "stock" else [f"--gpushim-device={options.device}"]
    return [
        *(sys.executable, "-m", "pytest", "-q", "-p", "gpushim.pytest_plugin", "-p", "no:cacheprovider"),
        *("-p", "no:timeout", "-p", "no:xdist", "--tb=short", f"--rootdir={file.root}"),
        *("-c", str(own if file.suite == "array-api" and own.is_file() else folder / "pytest.ini")),
        *(
            "-W",
            "ignore::pytest.PytestUnknownMarkWarning",
            *marks,
            *(["-k", options.keyword] if options.keyword else []),
        ),
        *(*device, *MODES[mode], f"--gpushim-record={folder / 'record'}", f"--gpushim-done={folder / 'done'}"),
        *([f"--gpushim-only={folder / 'only'}"] if mode == "stock" else []),
        *(
            f"--gpushim-sample={options.sample}",
            f"--gpushim-shard={part[0]}/{part[1]}",
            *file.arguments,
            str(file.path),
        ),
    ]


def program_command(file: File, mode: str, options: Options) -> list[str]:
    if mode == "stock":
        return [sys.executable, str(file.path)]
    gpushim = ["-m", "gpushim", "--device", options.device, "--report=json", *PROGRAM_MODES[mode]]
    return [sys.executable, *gpushim, str(file.path)]
