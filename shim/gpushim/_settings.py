"""The settings: one table from which `install()`, the command line, the environment and docs/settings.md derive.

This module imports nothing of gpushim, so that the documentation can be made without the extension.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Setting(NamedTuple):
    """One row of the table. `kind` is "choice", "count", "flag" or "path"."""

    name: str
    kind: str
    default: object
    help: str
    choices: tuple[str, ...] = ()
    option: str = ""
    #: What a bare option without a value means ("--report" is "--report=text"); None: it needs one.
    bare: str | None = None
    #: "install": an argument of the extension; "option": an entry of its options; "environment": the extension reads the
    #: variable, which install() sets; "python": used here only.
    used_by: str = "option"

    @property
    def variable(self) -> str:
        return "GPUSHIM_" + self.name.upper()

    def parse(self, value: object, source: str) -> object:
        """Checks a value from Python or text from the environment or the command line.

        :raises ValueError: names `source` and says what is allowed.
        """
        parsed: object
        if self.kind == "flag":
            allowed = "1 or 0"
            if isinstance(value, bool):
                return value
            parsed = _FLAG_WORDS.get(str(value).strip().lower())
            if parsed is not None:
                return parsed
        elif self.kind == "count":
            allowed = "a number of bytes such as 65536, 64K, 1.5M or 2G"
            parsed = _parse_count(value)
            if parsed is not None:
                return parsed
        elif self.kind == "path":
            allowed = "a folder"
            if isinstance(value, str | os.PathLike):
                return os.fspath(value)
        else:
            allowed = ", ".join(self.choices)
            if isinstance(value, str) and value.strip().lower() in self.choices:
                return value.strip().lower()
        raise ValueError(f"{source}={value!r}: expected {allowed}")


_FLAG_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
    "": False,
}
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _parse_count(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip().lower().removesuffix("b").removesuffix("i")
        unit = _UNITS.get(text[-1:], 1)
        try:
            number = float(text[:-1]) * unit if unit > 1 else int(text)
            return int(number) if number >= 0 else None
        except (ValueError, OverflowError):
            return None
    try:
        number = value.__index__()  # type: ignore[attr-defined]
    except AttributeError:
        return None
    return number if number >= 0 else None


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "device",
        "choice",
        "auto",
        choices=("auto", "cuda", "host"),
        option="--device",
        used_by="install",
        help="Where work goes. auto: the first CUDA device, and NumPy stays as it is when there is none. host: a second "
        "copy of memory on the CPU with the same coherence, for tests and for a look at what gpushim does without a GPU.",
    ),
    Setting(
        "min_bytes",
        "count",
        256 << 10,
        option="--min-bytes",
        used_by="install",
        help="Arrays smaller than this stay in NumPy. 0 sends everything that has an implementation to the device, "
        "which is slow and meant for tests.",
    ),
    Setting(
        "random",
        "choice",
        "numpy",
        choices=("numpy", "curand"),
        option="--random",
        help="numpy: the same numbers as without gpushim. curand: large draws of np.random take one key from the generator "
        "and fill the array with numbers of cuRAND's Philox generator: reproducible for a seed, but not NumPy's.",
    ),
    Setting(
        "eager",
        "flag",
        False,
        option="--eager",
        help="Evaluate every operation at once instead of recording it: tells a kernel's error from the recorder's.",
    ),
    Setting(
        "check",
        "flag",
        False,
        option="--check",
        help="Run NumPy too, compare, and say where results differ. Slow.",
    ),
    Setting(
        "dump",
        "flag",
        False,
        option="--dump",
        help="Write every program that is evaluated to standard error, instruction by instruction.",
    ),
    Setting(
        "jit",
        "flag",
        True,
        used_by="environment",
        help="Compile programs that run often, on a background thread. Off: the interpreter runs everything.",
    ),
    Setting(
        "jit_always",
        "flag",
        False,
        used_by="environment",
        help="For developers: compile every program at its first run, while its caller waits.",
    ),
    Setting(
        "jit_dump",
        "path",
        "",
        used_by="environment",
        help="A folder that receives the listing and the source of every compiled program.",
    ),
    Setting(
        "cache_dir",
        "path",
        "",
        used_by="environment",
        help="Where compiled kernels are kept between processes. Empty: gpushim in $XDG_CACHE_HOME or ~/.cache.",
    ),
    Setting(
        "cache_bytes",
        "count",
        256 << 20,
        used_by="environment",
        help="Most that the kept kernels may take on disk, in bytes; the least recently used go first.",
    ),
    Setting(
        "strict",
        "flag",
        False,
        option="--strict",
        help="Raise an error that names the reason wherever work at or above the threshold would fall back to NumPy.",
    ),
    Setting(
        "report",
        "choice",
        "off",
        choices=("off", "text", "json"),
        option="--report",
        bare="text",
        used_by="python",
        help="At exit, write to stderr what ran where, what fell back and why, and the bytes moved.",
    ),
    Setting(
        "profile",
        "flag",
        False,
        help="Time every call, for the report's time columns. A report asked for at the start turns it on.",
    ),
    Setting(
        "log",
        "choice",
        "warn",
        choices=("warn", "info", "debug"),
        help="What to say on stderr while running. info (-v): the device, and each function's first fallback with its "
        "reason. debug (-vv): copies and evaluations as well.",
    ),
    Setting(
        "device_limit",
        "count",
        0,
        option="--device-limit",
        help="Most device memory to use, in bytes; what does not fit is spilled to the host. 0: all but a reserve.",
    ),
    Setting(
        "pool_host_limit",
        "count",
        64 << 20,
        option="--pool-host-limit",
        help="Host memory kept in freed blocks for reuse, in bytes.",
    ),
    Setting(
        "pool_pinned_limit",
        "count",
        0,
        option="--pool-pinned-limit",
        help="Pinned host memory kept in freed blocks for reuse, in bytes. 0: a quarter of the host's memory.",
    ),
)

BY_NAME: dict[str, Setting] = {setting.name: setting for setting in SETTINGS}
assert len(BY_NAME) == len(SETTINGS), "a setting is named twice"


def resolve(given: Mapping[str, object], environ: Mapping[str, str] = os.environ) -> dict[str, object]:
    """The value of every setting: given (None means not given), else from its variable, else the default.

    :raises TypeError: for an unknown name in `given`.
    :raises ValueError: for a value that the setting does not take.
    """
    for name in given:
        if name not in BY_NAME:
            raise TypeError(f"install() got an unexpected setting {name!r}; there are {', '.join(BY_NAME)}")
    values = {}
    for setting in SETTINGS:
        value: object = setting.default
        if given.get(setting.name) is not None:
            value = setting.parse(given[setting.name], setting.name)
        elif setting.variable in environ:
            value = setting.parse(environ[setting.variable], setting.variable)
        values[setting.name] = value
    return values


def format_count(count: object) -> str:
    """65536 as "64K": the inverse of what a count setting parses, for documentation."""
    number = int(count)  # type: ignore[call-overload]
    for unit in ("T", "G", "M", "K"):
        size = _UNITS[unit.lower()]
        if number and number % size == 0:
            return f"{number // size}{unit}"
    return str(number)
