"""The settings table: where values come from, what is refused, and that the documentation is current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gpushim import _settings

ROOT = Path(__file__).resolve().parents[2]


def test_defaults():
    values = _settings.resolve({}, environ={})
    assert values == {setting.name: setting.default for setting in _settings.SETTINGS}


def test_argument_beats_variable_beats_default():
    environ = {"GPUSHIM_MIN_BYTES": "64K", "GPUSHIM_DEVICE": "HOST"}
    assert _settings.resolve({"min_bytes": 1}, environ)["min_bytes"] == 1
    assert _settings.resolve({"min_bytes": None}, environ)["min_bytes"] == 65536
    assert _settings.resolve({}, environ)["device"] == "host"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("123", 123),
        ("64K", 65536),
        ("64k", 65536),
        ("64KiB", 65536),
        ("1.5M", 3 << 19),
        ("2g", 2 << 30),
        (" 7 ", 7),
    ],
)
def test_counts(text, number):
    assert _settings.resolve({"min_bytes": text}, environ={})["min_bytes"] == number


@pytest.mark.parametrize("text", ["-1", "x", "", "1.5", "K", "1e400G", "nanM", True, 1.5])
def test_bad_counts(text):
    with pytest.raises(ValueError, match="expected a number of bytes"):
        _settings.resolve({"min_bytes": text}, environ={})


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("on", True), ("TRUE", True), ("0", False), ("no", False), ("", False)]
)
def test_flags(text, value):
    assert _settings.resolve({}, {"GPUSHIM_STRICT": text})["strict"] is value


def test_errors_name_their_source():
    with pytest.raises(ValueError, match="GPUSHIM_STRICT='perhaps': expected 1 or 0"):
        _settings.resolve({}, {"GPUSHIM_STRICT": "perhaps"})
    with pytest.raises(ValueError, match="device='tpu': expected auto, cuda, host"):
        _settings.resolve({"device": "tpu"}, environ={})
    with pytest.raises(TypeError, match="unexpected setting 'colour'"):
        _settings.resolve({"colour": 1}, environ={})


def test_counts_are_shown_as_they_parse():
    for count in (0, 1, 1000, 65536, 64 << 20, 3 << 30, 1 << 40):
        assert _settings.resolve({"min_bytes": _settings.format_count(count)}, environ={})["min_bytes"] == count


@pytest.mark.parametrize("page", ["settings", "fallback"])
def test_generated_pages_are_current(page):
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check", page],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_coverage_lists_what_numpy_has():
    np = pytest.importorskip("numpy")
    page = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
    if f"function of NumPy {np.__version__}," not in page:
        pytest.skip("the page was made with another NumPy")
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "coverage.py"), "--check"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
