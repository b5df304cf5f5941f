"""The command line: ``python -m gpushim [options] script.py args... | -m module | -c code | -``.

Everything after the script, module or code belongs to the program, which sees `sys.argv`, `sys.path`, `__main__`, exit
statuses and tracebacks as if Python had started it itself.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from gpushim import _run, _settings

_USAGE = "%(prog)s [options] script.py [args ...] | -m module [args ...] | -c code [args ...] | - [args ...]"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a program under gpushim; returns only where there is no program to run."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    parser = _parser()
    own, program = _split(arguments, parser)
    options = parser.parse_args(own)
    given = {s.name: getattr(options, s.name) for s in _settings.SETTINGS if s.option}
    if options.verbose:
        given["log"] = "info" if options.verbose == 1 else "debug"
    try:
        _settings.resolve(given)
    except ValueError as error:
        parser.error(str(error))
    if options.info:
        return _print_info(given)
    if not program and sys.stdin is not None and sys.stdin.isatty():
        parser.error("no program: give a script, -m module, -c code or -")

    import gpushim

    gpushim.install(**given)
    _run.run(program or ["-"])
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gpushim",
        usage=_USAGE,
        allow_abbrev=False,
        description="Runs an unmodified NumPy program with its array work on a GPU.",
        epilog="Every option has a GPUSHIM_* variable as well; docs/settings.md lists them all.",
    )
    for setting in _settings.SETTINGS:
        if not setting.option:
            continue
        if setting.kind == "flag":
            parser.add_argument(setting.option, dest=setting.name, action="store_const", const=True, help=setting.help)
        else:
            values = "|".join(setting.choices) if setting.choices else "N"
            parser.add_argument(
                setting.option,
                dest=setting.name,
                metavar=values,
                help=setting.help,
                nargs="?" if setting.bare else None,
                const=setting.bare or None,
            )
    parser.add_argument("-v", dest="verbose", action="count", default=0, help=_settings.BY_NAME["log"].help)
    parser.add_argument("--info", action="store_true", help="Print versions, devices and settings, and exit.")
    return parser


def _split(arguments: list[str], parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """Our options, and the program with its arguments."""
    takes_value = {
        option
        for action in parser._actions
        for option in action.option_strings
        if action.nargs is None and option.startswith("--")
    }
    i = 0
    while i < len(arguments):
        argument = arguments[i]
        if argument == "--":
            return arguments[:i], arguments[i + 1 :]
        if argument[:2] in ("-m", "-c") or argument == "-" or not argument.startswith("-"):
            return arguments[:i], arguments[i:]
        i += 2 if argument in takes_value else 1
    return arguments, []


def _print_info(given: dict) -> int:
    import gpushim

    usable = gpushim.install(**{**given, "log": None, "report": "off"})
    print(json.dumps({**gpushim.system_info(), "settings": _settings.resolve(given)}, indent=2, default=str))
    return 0 if usable else 1


if __name__ == "__main__":
    sys.exit(main())
