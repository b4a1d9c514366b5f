"""Write the table of tests/evidence/jvm-configurations.md: ``python -m tests.jvm_configurations``."""

from tests.jvm_configurations.table import PAGE, with_table

if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
