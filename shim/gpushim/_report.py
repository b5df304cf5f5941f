"""The report: what ran where, what fell back and why, and what was moved. Text for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpushim import _shim


class Report:
    """A snapshot of the statistics since `install()`. ``print()`` it, or take `data` or `to_json()`."""

    def __init__(self, stats: dict) -> None:
        functions = sorted(stats["functions"], key=lambda f: (-f["device_seconds"] - f["host_seconds"], f["name"]))
        #: {"summary": {...}, "functions": [{...}, ...], "memory": {counter: number}}; seconds and bytes.
        self.data: dict = {
            "summary": _summary(functions),
            "functions": functions,
            "memory": dict(stats["memory"]),
        }

    def to_json(self) -> str:
        """One line of JSON."""
        import json  # of no use to programs that print tables

        return json.dumps(self.data, sort_keys=False)

    def __str__(self) -> str:
        return "\n".join(
            [_headline(self.data["summary"]), *_table(self.data["functions"]), *_memory_lines(self.data["memory"])]
        )

    __repr__ = __str__


def report() -> Report:
    """What ran where since `install()`: per function calls and time on the device and in NumPy, with the reasons for
    the latter, and the bytes moved. The result prints as a table and has `.data` and `.to_json()`."""
    return Report(_shim.stats())


def _summary(functions: Iterable[dict]) -> dict:
    totals = {
        key: sum(f.get(key, 0) for f in functions)
        for key in ("device_calls", "device_seconds", "device_bytes", "host_calls", "host_seconds", "host_bytes")
    }
    reasons: dict[str, int] = {}
    for function in functions:
        for reason, count in function["reasons"].items():
            reasons[reason] = reasons.get(reason, 0) + count
    return {
        **totals,
        "device_share_of_calls": _share(totals["device_calls"], totals["host_calls"]),
        "device_share_of_bytes": _share(totals["device_bytes"], totals["host_bytes"]),
        "reasons": dict(sorted(reasons.items(), key=lambda item: -item[1])),
    }


def _share(device: float, host: float) -> float | None:
    return device / (device + host) if device + host else None


def _headline(summary: dict) -> str:
    calls = summary["device_calls"] + summary["host_calls"]
    if not calls:
        return "gpushim: no hooked NumPy call was made"
    share = _percent(summary["device_share_of_calls"])
    text = f"gpushim: {summary['device_calls']:,} of {calls:,} hooked NumPy calls ran on the device ({share})"
    if summary["device_share_of_bytes"] is not None:
        text += f", with {_percent(summary['device_share_of_bytes'])} of the bytes"
    return text


def _percent(share: float) -> str:
    # 99.97 % must not read as 100 %: something did fall back.
    rounded = f"{100 * share:.0f}"
    if (rounded == "100" and share < 1) or (rounded == "0" and share > 0):
        rounded = f"{min(max(100 * share, 0.1), 99.9):.1f}"
    return rounded + " %"


def _table(functions: Sequence[dict]) -> list[str]:
    rows = [("function", "device calls", "time", "host calls", "time", "why on the host")]
    for f in functions:
        reasons = sorted(f["reasons"].items(), key=lambda item: -item[1])
        rows.append(
            (
                f["name"],
                *_calls(f["device_calls"], f["device_seconds"]),
                *_calls(f["host_calls"], f["host_seconds"]),
                ", ".join(f"{reason} {count:,}" for reason, count in reasons),
            )
        )
    if len(rows) == 1:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    lines = []
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:5], widths[1:5], strict=True)),
            row[5],
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return lines


def _calls(count: int, seconds: float) -> tuple[str, str]:
    return f"{count:,}" if count else "-", format_seconds(seconds) if seconds else ""


def _memory_lines(memory: dict) -> list[str]:
    up, down = memory.get("upload_bytes", 0), memory.get("download_bytes", 0)
    lines = [
        f"  moved: {format_bytes(up)} to the device in {memory.get('upload_count', 0):,} copies, "
        f"{format_bytes(down)} back in {memory.get('download_count', 0):,}"
    ]
    faults = f"  touched by the CPU: {memory.get('read_faults', 0):,} read faults, {memory.get('write_faults', 0):,} write faults"
    if memory.get("fetches"):
        faults += f", {memory['fetches']:,} single elements fetched"
    lines.append(faults)
    if memory.get("values"):
        fused = (
            f"  fused: {memory['values']:,} results in {memory['programs']:,} programs, "
            f"{memory['dropped_values']:,} never stored"
        )
        if memory.get("compiled_programs"):
            fused += f"; {memory['compiled_programs']:,} runs of compiled kernels"
        lines.insert(0, fused)
    if memory.get("spills") or memory.get("evictions"):
        lines.append(
            f"  device full: {memory.get('spills', 0):,} blocks spilled, {memory.get('evictions', 0):,} copies dropped"
        )
    return lines


def format_seconds(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * size:
            number = seconds / size
            return f"{number:.0f} {unit}" if number >= 99.5 else f"{number:.1f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def format_bytes(count: int) -> str:
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
