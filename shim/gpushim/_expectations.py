"""Expectations files: tests that are known to differ under gpushim, each with what kind of difference it is and why.

TOML, one ``[[difference]]`` a test or group of tests::

    [[difference]]
    test = "package/tests/test_file.py::test_name"  # a final * stands for any ending
    severity = "low"                                # low, medium or high: what it means to a user
    category = "ulp"                                # one of CATEGORIES
    reason = "accumulates in another order"
    ulp = 1                                         # category "ulp": how far off
    numpy = ["2.4", "2.5"]                          # versions it was seen with; left out: all
    device = "cuda"                                 # left out: every device
    modes = ["lazy", "eager"]                       # left out: every mode of the run
    cpu = "AVX512_SKX"                              # where NumPy uses that feature of the CPU; left out: everywhere

Wrong values, dtypes, exceptions or warnings, crashes, hangs and leaks are bugs: there is no category for them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CATEGORIES = ("ulp", "reduction-order message", "reference counting", "memory policy")
SEVERITIES = ("low", "medium", "high")


@dataclass(frozen=True)
class Expectation:
    """One entry of a file."""

    test: str
    severity: str
    category: str
    reason: str
    ulp: float | None = None
    numpy: tuple[str, ...] = ()
    device: str = ""
    modes: tuple[str, ...] = ()
    cpu: str = ""

    def matches(self, test: str) -> bool:
        return test.startswith(self.test[:-1]) if self.test.endswith("*") else test == self.test

    def applies(self, *, numpy: str, device: str = "", mode: str = "") -> bool:
        """Whether the entry speaks of this CPU and this NumPy version, device and mode ("" means any)."""
        return (
            (not self.numpy or any(numpy == v or numpy.startswith(v + ".") for v in self.numpy))
            and (not self.device or not device or device == self.device)
            and (not self.modes or not mode or mode in self.modes)
            and (not self.cpu or _numpy_uses(self.cpu))
        )


def _numpy_uses(cpu_feature: str) -> bool:
    from numpy._core._multiarray_umath import __cpu_features__  # not before gpushim is installed

    return __cpu_features__.get(cpu_feature, False)


def read(path: Path) -> list[Expectation]:
    """The entries of a file.

    :raises ValueError: names the file and what is wrong with the entry.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    entries = data.pop("difference", [])
    if data:
        raise ValueError(f"{path}: expected [[difference]] entries alone, not {', '.join(data)}")
    return [_parse(entry, path) for entry in entries]


def _parse(entry: dict, path: Path) -> Expectation:
    where = f"{path}: {entry.get('test', 'an entry without a test')}"
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    try:
        expectation = Expectation(**values)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None
    if expectation.category not in CATEGORIES:
        raise ValueError(f"{where}: category {expectation.category!r} is none of {', '.join(CATEGORIES)}")
    if expectation.severity not in SEVERITIES:
        raise ValueError(f"{where}: severity {expectation.severity!r} is none of {', '.join(SEVERITIES)}")
    if (expectation.category == "ulp") != (expectation.ulp is not None):
        raise ValueError(f"{where}: an entry of category ulp, and no other, says how many")
    if not expectation.reason.strip():
        raise ValueError(f"{where}: no reason")
    return expectation


def stale(expectations: Iterable[Expectation], ran: Iterable[str], used: set[Expectation]) -> list[Expectation]:
    """Entries of which nothing came true, although their tests or at least their file ran: they must go."""
    ran = set(ran)
    files = {test.partition("::")[0] for test in ran}
    return [e for e in expectations if e not in used and e.test.partition("::")[0].rstrip("*") in files]
