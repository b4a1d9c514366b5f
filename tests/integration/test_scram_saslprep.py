"""Kafka's SCRAM uses passwords without SASLprep; this client has to do the same."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from pyspark_kafka_direct.broker.maven import kafka_jars

if TYPE_CHECKING:
    from pathlib import Path

SCRAM_FORMATTER = """
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;

public class Normalize {
    public static void main(String[] words) {
        String text = new String(HexFormat.of().parseHex(words[0]), StandardCharsets.UTF_8);
        System.out.println(HexFormat.of().formatHex(ScramFormatter.normalize(text)));
    }
}
"""


def test_kafka_does_not_apply_saslprep_to_passwords(tmp_path: Path) -> None:
    """If this changes, passwords with such characters must be prepared here too."""
    (tmp_path / "Normalize.java").write_text(SCRAM_FORMATTER)
    password = (
        "a\u00a0\u2168\u00ad".encode()
    )  # a no-break space, a Roman nine, a soft hyphen: SASLprep changes all three
    classpath = os.pathsep.join(map(str, kafka_jars("4.4.0")))
    command = ["java", "-cp", classpath, str(tmp_path / "Normalize.java"), password.hex()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    assert bytes.fromhex(ran.stdout.strip()) == password
