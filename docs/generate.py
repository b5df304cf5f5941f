"""Makes the pages that come from tables in the code: docs/settings.md and docs/fallback.md.

    python docs/generate.py [--check] [settings] [fallback]

--check writes nothing and fails when a page is not what the code says.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
NOTE = "<!-- Made by docs/generate.py from {}; change that, then run `make docs`. -->\n\n"


def settings() -> str:
    # By path: this page needs no built extension.
    table = DOCS.parent / "shim" / "gpushim" / "_settings.py"
    spec = importlib.util.spec_from_file_location("_settings", table)
    module = importlib.util.module_from_spec(spec)
    sys.modules["_settings"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    lines = [
        "# Settings\n",
        "A value given to `gpushim.install()` or on the command line wins, then the environment variable, then the default.",
        "Sizes are bytes, with `K`, `M`, `G` or `T` for powers of 1024; flags take `1` or `0`.\n",
        "| `install(...)` | variable | `python -m gpushim` | values | default | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for setting in module.SETTINGS:
        values = {"flag": "flag", "count": "bytes", "choice": ", ".join(setting.choices), "path": "folder"}[
            setting.kind
        ]
        default = {"flag": str(int(bool(setting.default))), "choice": str(setting.default), "path": "empty"}.get(
            setting.kind
        ) or module.format_count(setting.default)
        option = setting.option + (f"[=...]` (alone: `{setting.bare}" if setting.bare else "")
        option = f"`{option}`" + (")" if setting.bare else "") if setting.option else ""
        if setting.name == "log":
            option = "`-v`, `-vv`"
        argument = "" if setting.used_by == "environment" else f"`{setting.name}`"
        cells = (argument, f"`{setting.variable}`", option, values, f"`{default}`", setting.help)
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "The variables are read when `install()` runs. A process that does not call it, and was not started by",
        "`python -m gpushim`, is not changed by them.",
    ]
    return NOTE.format("shim/gpushim/_settings.py") + "\n".join(lines) + "\n"


def fallback() -> str:
    table = (DOCS.parent / "dispatch" / "reasons.def").read_text(encoding="utf-8")
    reasons = re.findall(r'^GPUSHIM_REASON\((\w+), "(.*)"\)$', table, re.MULTILINE)
    if len(reasons) != table.count("\nGPUSHIM_REASON("):
        raise SystemExit(
            'docs/generate.py: a row of dispatch/reasons.def is not GPUSHIM_REASON(name, "text") on one line'
        )
    lines = [
        "# When NumPy does the work\n",
        "Whatever gpushim does not run on the device goes to NumPy untouched, with NumPy's results and errors. Each such",
        "call is counted under one reason. `gpushim.report()` and `--report` show the counts, and `--strict` raises.\n",
        "| reason | meaning |",
        "|---|---|",
        *(f"| `{name}` | {text} |" for name, text in reasons),
    ]
    return NOTE.format("dispatch/reasons.def") + "\n".join(lines) + "\n"


PAGES = {"settings": settings, "fallback": fallback}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", help=f"of {', '.join(PAGES)}; all when none is named")
    parser.add_argument("--check", action="store_true", help="fail when a page is not current")
    arguments = parser.parse_args()
    stale = 0
    for page in arguments.pages or PAGES:
        path, text = DOCS / f"{page}.md", PAGES[page]()
        if not arguments.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"docs/{path.name} is not what the code says: run `make docs`")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
