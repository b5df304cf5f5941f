"""Runs a program in this process as `python` would: script, directory or zip, module, code, or standard input.

The frames of gpushim and of the `python -m gpushim` that led here are cut from the tracebacks the user sees. Exceptions
propagate to the interpreter all the same, so that exit statuses, signals and `sys.last_exc` are Python's own.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import linecache
import os
import runpy
import sys
import types
from typing import NoReturn

# The first `__main__` (gpushim's own) must outlive the program: its functions are on the stack.
_kept_alive: list[types.ModuleType] = []
_OWN_FILES = {__file__, os.path.join(os.path.dirname(__file__), "__main__.py"), runpy.__file__, "<frozen runpy>"}


def run(program: list[str]) -> None:
    """Runs the program and returns when it ends; what it raises comes out, SystemExit too."""
    first = program[0]
    try:
        if first.startswith("-m"):
            _run_module(*_option_value(program, "-m"))
        elif first.startswith("-c"):
            _run_code(*_option_value(program, "-c"))
        elif first == "-":
            _run_standard_input(program)
        else:
            _run_path(program)
    except SystemExit:
        raise
    except BaseException:
        _clean_tracebacks()
        raise


def _option_value(program: list[str], option: str) -> tuple[str, list[str]]:
    attached = program[0][len(option) :]
    if attached:
        return attached, program[1:]
    if len(program) < 2:
        _fail(f"argument expected for the {option} option")
    return program[1], program[2:]


def _fail(message: str) -> NoReturn:
    print(f"gpushim: {message}", file=sys.stderr)
    raise SystemExit(2)


def _run_module(name: str, arguments: list[str]) -> None:
    sys.argv = ["-m", *arguments]
    _set_path0(os.getcwd())
    _new_main(loader=importlib.machinery.BuiltinImporter)
    # What `python -m` itself calls; unlike run_module it runs in the real __main__ and reports a missing module.
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _run_code(code: str, arguments: list[str]) -> None:
    sys.argv = ["-c", *arguments]
    _set_path0("")
    _execute(code, "<string>", _new_main(loader=importlib.machinery.BuiltinImporter))


def _run_standard_input(program: list[str]) -> None:
    sys.argv = ["-", *program[1:]]
    _set_path0("")
    source = sys.stdin.buffer.read()
    main = _new_main(loader=importlib.machinery.BuiltinImporter)
    main.__file__ = "<stdin>"
    _execute(source, "<stdin>", main)


def _run_path(program: list[str]) -> None:
    script = program[0]
    sys.argv = list(program)
    path = script if os.path.isabs(script) else os.path.join(os.getcwd(), script)
    if os.path.isdir(path) or _is_archive(path):
        _set_path0(path)
        _new_main(loader=importlib.machinery.BuiltinImporter)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    _set_path0(os.path.dirname(os.path.realpath(path)))
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        _fail(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}")
    main = _new_main(loader=importlib.machinery.SourceFileLoader("__main__", path))
    main.__file__ = path
    main.__cached__ = None  # type: ignore[attr-defined]
    _execute(source, path, main)


def _is_archive(path: str) -> bool:
    import zipimport

    try:
        zipimport.zipimporter(path)
    except zipimport.ZipImportError:
        return False
    return True


def _set_path0(entry: str) -> None:
    """Replaces the entry that Python put first for us by the one that it would have put for the program."""
    if not sys.flags.safe_path:
        sys.path[0] = entry


def _new_main(loader: object) -> types.ModuleType:
    """An empty `__main__`, as a program finds it."""
    _kept_alive.append(sys.modules["__main__"])
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    main.__loader__ = loader  # type: ignore[assignment]
    sys.modules["__main__"] = main
    return main


def _execute(source: str | bytes, filename: str, main: types.ModuleType) -> None:
    if isinstance(source, str):  # lets tracebacks show the lines of -c code
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec", dont_inherit=True), main.__dict__)


def _clean_tracebacks() -> None:
    """Wraps whatever excepthook the program left, so that it sees the traceback from the program's first frame on."""
    show = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
        while traceback is not None and traceback.tb_frame.f_code.co_filename in _OWN_FILES:
            traceback = traceback.tb_next
        error.__traceback__ = traceback
        show(kind, error, traceback)

    sys.excepthook = excepthook
