"""The report's sums, its text and its JSON."""

from __future__ import annotations

import json

import pytest
from gpushim._report import Report, format_bytes, format_seconds

ADD = {
    "name": "add",
    "device_calls": 4000,
    "device_seconds": 0.0123,
    "host_calls": 31,
    "host_seconds": 40e-6,
    "reasons": {"small": 31},
}
EIG = {
    "name": "eig",
    "device_calls": 0,
    "device_seconds": 0.0,
    "host_calls": 2,
    "host_seconds": 1.1,
    "reasons": {"not implemented": 2},
}
MEMORY = {
    "upload_count": 3,
    "upload_bytes": 1 << 30,
    "download_count": 1,
    "download_bytes": 2222,
    "read_faults": 1,
    "write_faults": 0,
}


def make(functions=(ADD, EIG), **memory):
    return Report({"functions": list(functions), "memory": {**MEMORY, **memory}})


def test_text():
    assert str(make()).splitlines() == [
        "gpushim: 4,000 of 4,033 hooked NumPy calls ran on the device (99 %)",
        "  function  device calls     time  host calls     time  why on the host",
        "  eig                  -                    2    1.1 s  not implemented 2",
        "  add              4,000  12.3 ms          31  40.0 us  small 31",
        "  moved: 1.0 GiB to the device in 3 copies, 2.2 KiB back in 1",
        "  touched by the CPU: 1 read faults, 0 write faults",
    ]


def test_bytes_spills_and_fetches_are_told_when_there_are_any():
    text = str(make([{**ADD, "device_bytes": 999, "host_bytes": 1}], spills=2, evictions=5, fetches=8))
    assert "with 99.9 % of the bytes" in text
    assert "8 single elements fetched" in text
    assert "device full: 2 blocks spilled, 5 copies dropped" in text


def test_almost_all_is_not_all():
    almost = {**ADD, "device_calls": 100_000, "host_calls": 1}
    assert "(99.9 %)" in str(make([almost]))
    assert "(100 %)" in str(make([{**ADD, "host_calls": 0, "reasons": {}}]))
    assert "(0.1 %)" in str(make([{**ADD, "device_calls": 1, "host_calls": 100_000}]))


def test_nothing_seen():
    assert str(make([])).startswith("gpushim: no hooked NumPy call was made")


def test_json():
    data = json.loads(make().to_json())
    assert data["summary"]["device_calls"] == 4000
    assert data["summary"]["device_share_of_calls"] == pytest.approx(4000 / 4033)
    assert data["summary"]["reasons"] == {"small": 31, "not implemented": 2}
    assert [f["name"] for f in data["functions"]] == ["eig", "add"]
    assert data["memory"] == MEMORY


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ns"),
        (5e-7, "500 ns"),
        (1.234e-6, "1.2 us"),
        (0.0999, "100 ms"),
        (0.0994, "99.4 ms"),
        (0.9999, "1.0 s"),
        (0.25, "250 ms"),
        (123.4, "123 s"),
    ],
)
def test_seconds(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 39, "1.5 TiB")])
def test_bytes(count, text):
    assert format_bytes(count) == text
