"""Compare the kernel with the golden files: ``python -m tests.golden``; ``--write json`` writes the file of a kind."""

from __future__ import annotations

import argparse
import sys

from tests.golden.files import KINDS, differences, write


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the kernel with the golden files.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; by default all")
    parser.add_argument("--write", action="store_true", help="write new inputs, with the answers of the kernel")
    arguments = parser.parse_args()
    unknown = set(arguments.kinds) - set(KINDS)
    if unknown:
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    found = []
    for name in arguments.kinds or KINDS:
        if arguments.write:
            write(name)
        found += differences(name)
    print("\n\n".join(found) or "no differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
