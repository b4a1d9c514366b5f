"""Exits with a sentence about what the machine lacks for ``make test-kerberos``."""

from __future__ import annotations

import sys

from tests.kerberos.kdc import missing_packages

if __name__ == "__main__":
    sys.exit(missing_packages() or None)
