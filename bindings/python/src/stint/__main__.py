# SPDX-License-Identifier: MIT
"""`python -m stint`: what a quota guarantees, and what a table holds."""

from __future__ import annotations

import argparse
import os
import sys

from . import Error, Table, __version__, explain


def _explain(args: argparse.Namespace) -> None:
    print(explain(" ".join(args.spec)))


def _table(args: argparse.Namespace) -> None:
    with Table(args.file, must_exist=True, read_only=True) as table:
        info = table.info()
    width = max(map(len, info))
    for name, value in info.items():
        print(f"{name:{width}}  {value}")


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m stint", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("explain", help="print what a quota guarantees")
    command.add_argument("spec", nargs="+", metavar="SPEC", help='such as "100/1m"')
    command.set_defaults(run=_explain)
    command = commands.add_parser("table", help="print sizes and counters of a table in a file")
    command.add_argument("file", metavar="FILE")
    command.set_defaults(run=_table)
    args = parser.parse_args(argv)
    try:
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Error as error:
        print(f"stint: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
