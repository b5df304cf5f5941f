"""Writes the type stubs of gpushim's mirror of NumPy: gpushim/__init__.pyi and one file for each of NumPy's public modules.

    python shim/stubs/make_stubs.py [--check]

No name is kept here. What there is comes from the running package, parameters from `inspect.signature`, results from NumPy's own stubs:
where those say array or scalar the result is a `gpushim.ndarray`, a plain Python type stays, anything else is Any. `--check` compares
with the files and writes nothing.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import pathlib
import re
import sys
import types
from typing import Any

import gpushim
import numpy

HERE = pathlib.Path(gpushim.__file__).parent
#: Python 3.13 finds signatures that 3.12 does not.
PYTHON = ".".join(map(str, sys.version_info[:2]))
HEAD = "# Written by shim/stubs/make_stubs.py from NumPy {}, with Python " + PYTHON + "; do not edit.\n"
PLAIN = {"int", "bool", "str", "bytes", "float", "complex", "None", "list[str]", "list[int]", "builtins.int", "py_bool"}
#: An annotation that begins so is an array or a NumPy scalar.
ARRAY = re.compile(
    r"(np\.)?(ndarray|generic|bool_?|u?int(\d+|p|_)|float\d+|complex\d+|\w*floating|\w*integer|number)\b"
    r"|NDArray|ArrayT|OutT|ScalarT|Self|_\w*(Array|Matrix)\w*|_ScalarT\w*|Incomplete"
)
#: Folders of NumPy whose functions make arrays of their own.
OTHER_ARRAYS = {"ma", "matrixlib", "polynomial", "char", "strings", "rec", "random", "f2py"}
OPERATORS = vars(numpy.lib.mixins.NDArrayOperatorsMixin)


def results_in(folder: pathlib.Path) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """What NumPy's stubs say that functions return, and methods and properties of ndarray."""
    functions: dict[str, set[str]] = {}
    methods: dict[str, set[str]] = {}

    def add(found: dict[str, set[str]], node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            found.setdefault(node.name, set()).add(ast.unparse(node.returns))

    for path in sorted(folder.rglob("*.pyi")):
        body = ast.parse(path.read_text()).body
        callables: dict[str, dict[str, set[str]]] = {}  # NumPy types np.zeros and its like as an object with __call__
        for node in body if path.relative_to(folder).parts[0] not in OTHER_ARRAYS else []:
            add(functions, node)
            if isinstance(node, ast.ClassDef):
                for member in node.body:
                    add(callables.setdefault(node.name, {}), member)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                for kind, members in callables.items():
                    if re.search(rf"\b{kind}\b", ast.unparse(node.annotation)) and "__call__" in members:
                        functions.setdefault(node.target.id, set()).update(members["__call__"])
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name in ("ndarray", "_ArrayOrScalarCommon"):
                for member in node.body:
                    add(methods, member)
    return functions, methods


FUNCTIONS, METHODS = results_in(pathlib.Path(numpy.__file__).parent)


def result(name: str, known: dict[str, set[str]]) -> str:
    # A tuple comes beside an array where an option asks for more results; None is what a setter returns.
    said = {s for s in known.get(name, set()) if s != "Any"}
    said = {s for s in said if not s.startswith("tuple[") and s != "None"} or said
    if known is METHODS and name in OPERATORS:
        return "tuple[ndarray, ndarray]" if "divmod" in name else "ndarray"
    if len(said) == 1 and (only := next(iter(said))) in PLAIN:
        return only.removeprefix("builtins.").removeprefix("py_")
    if said and all(ARRAY.match(s) for s in said):
        return "ndarray"
    if said and all(re.match(r"dtype\b|_DTypeT_co", s) for s in said):
        return "numpy.dtype[Any]"
    if said and all(s in ("_ShapeT_co", "tuple[int, ...]") for s in said):
        return "tuple[int, ...]"
    return "Any"


def parameters(function: Any, bound: bool) -> str:
    anything = "*args: Any, **kwargs: Any"
    try:
        given = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "self, " + anything if bound else anything
    if bound:
        given = given[1:] if given and given[0].name == "self" else given
    parts, kinds = ["self"] if bound else [], inspect.Parameter
    positional_only = [p for p in given if p.kind == kinds.POSITIONAL_ONLY]
    star = False
    for i, p in enumerate(given):
        if keyword.iskeyword(p.name):
            return "self, " + anything if bound else anything
        if p.kind == kinds.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or p.kind == kinds.VAR_POSITIONAL
        prefix = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(f"{prefix}{p.name}: Any" + (" = ..." if p.default is not kinds.empty else ""))
        if positional_only and i == len(positional_only) - 1:
            parts.append("/")
    return ", ".join(parts)


def of_value(name: str, value: Any, module: str, own: dict[str, Any]) -> str | None:
    """The line for one name of a namespace."""
    theirs = getattr(sys.modules[module], name, None)
    if isinstance(value, types.ModuleType):
        # Without the alias mypy takes it for private.
        return f"from gpushim import {name} as {name}" if value.__name__ == f"gpushim.{name}" else None
    if isinstance(value, type):
        if value is theirs:
            return f"from {module} import {name} as {name}"
        return f"{name}: Any" if name not in own else None
    if isinstance(theirs, numpy.ufunc):
        return f"{name}: Ufunc" if theirs.nout == 1 else f"{name}: UfuncOfMany"
    if (
        isinstance(theirs, types.FunctionType | types.BuiltinFunctionType)
        or type(theirs).__name__ == "_ArrayFunctionDispatcher"
    ):
        return f"def {name}({parameters(value, False)}) -> {result(name, FUNCTIONS)}: ..."
    kind = {float: "float", int: "int", str: "str", type(None): "None", bool: "bool"}.get(type(value), "Any")
    return f"{name}: {kind}"


def array_class() -> list[str]:
    lines = ["class ndarray:"]
    for name in sorted(dir(gpushim.ndarray)):
        value = inspect.getattr_static(gpushim.ndarray, name)
        if name == "__hash__":
            lines.append("    __hash__: None  # type: ignore[assignment]")
        elif hasattr(object, name) and name not in ("__eq__", "__ne__"):
            continue
        elif inspect.isgetsetdescriptor(value):
            kind = "str" if name == "device" else result(name, METHODS)
            lines.append(f"    @property\n    def {name}(self) -> {kind}: ...")
            if name in ("shape", "strides", "dtype", "real", "imag", "flat"):
                lines.append(f"    @{name}.setter\n    def {name}(self, value: Any) -> None: ...")
        elif name == "__array__":
            lines.append(
                "    def __array__(self, dtype: Any = ..., *, copy: Any = ...) -> numpy.ndarray[Any, Any]: ..."
            )
        elif callable(value):
            kind = {
                "__iter__": "Iterator[ndarray]",
                "__getitem__": "ndarray",
                "__new__": "Self",
                "__class_getitem__": "Any",
            }.get(name) or result(name, METHODS)
            ignore = {
                "__eq__": "  # type: ignore[override]",
                "__ne__": "  # type: ignore[override]",
                "__ipow__": "  # type: ignore[misc]",
            }.get(name, "")
            if name in ("__eq__", "__ne__"):
                kind = "ndarray"
            if name == "__class_getitem__":
                lines.append("    def __class_getitem__(cls, item: Any, /) -> Any: ...")
            else:
                lines.append(f"    def {name}({parameters(value, True)}) -> {kind}: ...{ignore}")
    lines.append(
        "    def __init__(self, shape: Any, dtype: Any = ..., buffer: Any = ..., offset: Any = ..., strides: Any = ..., order: Any = ...) -> None: ..."
    )
    return lines


IMPORTS = "from collections.abc import Iterator\nfrom typing import Any, Protocol\n\nimport numpy\n"
UFUNC = '''class Ufunc(Protocol):
    """A ufunc of NumPy: its attributes are NumPy's."""

    def __call__(self, *args: Any, **kwargs: Any) -> ndarray: ...
    def reduce(self, array: Any, *args: Any, **kwargs: Any) -> ndarray: ...
    def accumulate(self, array: Any, *args: Any, **kwargs: Any) -> ndarray: ...
    def reduceat(self, array: Any, indices: Any, *args: Any, **kwargs: Any) -> ndarray: ...
    def outer(self, a: Any, b: Any, /, **kwargs: Any) -> Any: ...
    def at(self, a: Any, indices: Any, b: Any = ..., /) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class UfuncOfMany(Protocol):
    """One with several results."""

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[ndarray, ...]: ...
    def __getattr__(self, name: str) -> Any: ...
'''


def own_names() -> list[str]:
    """What gpushim/__init__.py itself has: its imports, for type checkers of programs."""
    lines = []
    for node in ast.parse((HERE / "__init__.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gpushim."):
            lines += [
                f"from {node.module} import {a.name} as {a.asname or a.name}" for a in node.names if a.name != "ndarray"
            ]
    return [*lines, "__version__: str", "__array_api_version__: str", "__all__: list[str]"]


def stub_of_package() -> str:
    own = vars(gpushim)
    taken = {line.split(" as ")[-1] for line in own_names() if " as " in line} | {"ndarray"}
    lines = []
    for name in dir(numpy):
        if name.startswith("_") or name in taken:
            continue
        line = of_value(name, getattr(gpushim, name), "numpy", own)
        if line is not None:
            lines.append(line)
    return "\n".join(
        [HEAD.format(numpy.__version__) + IMPORTS, *own_names(), "", *array_class(), "", UFUNC, *lines, ""]
    )


def stub_of_module(name: str) -> str:
    module, theirs = getattr(gpushim, name), f"numpy.{name}"
    public = getattr(sys.modules[theirs], "__all__", dir(module))
    names = sorted(n for n in public if not n.startswith("_") and n != "ndarray")
    lines = [of_value(n, getattr(module, n), theirs, {}) for n in names]
    head = (
        HEAD.format(numpy.__version__)
        + "from typing import Any\n\nimport numpy\n\nfrom gpushim import Ufunc, UfuncOfMany, ndarray\n"
    )
    return "\n".join([head, *[line for line in lines if line is not None], ""])


def modules() -> list[str]:
    found = [n for n in dir(numpy) if isinstance(getattr(numpy, n), types.ModuleType) and not n.startswith("_")]
    return [n for n in found if getattr(gpushim, n).__name__ == f"gpushim.{n}"]


def main() -> int:
    files = {HERE / "__init__.pyi": stub_of_package()}
    for name in modules():
        files[HERE / f"{name}.pyi"] = stub_of_module(name)
    changed = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        print("\n".join(changed))
        return bool(changed)
    for path, text in files.items():
        path.resolve().write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
