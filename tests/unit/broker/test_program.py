"""The command line of the broker."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.broker.__main__ import main, paste


def test_a_topic_that_cannot_be_is_refused_before_a_broker_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--topic", "orders:none"]) == 1
    assert "'orders:none': the number of partitions must be" in capsys.readouterr().err


def test_an_unknown_sample_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--sample", "trains"])
    assert "flights" in capsys.readouterr().err


def test_what_is_to_be_pasted_is_python() -> None:
    text = paste("localhost:9092", "orders")
    compile(text, "paste", "exec")
    assert '"localhost:9092"' in text
    assert '"orders"' in text
