"""What createRDD refuses before it asks any broker."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_kafka_direct import OptionError
from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange

RANGE = OffsetRange.create("t", 0, 0, 10)
NOBODY = {"bootstrap.servers": "127.0.0.1:1"}  # asking it would be a BrokerError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kafkaParams": None}, "kafkaParams must be a dict"),
        ({"kafkaParams": lambda: 7}, "kafkaParams must be a dict"),
        ({"kafkaParams": dict}, "bootstrap.servers"),
        ({"offsetRanges": None}, "offsetRanges takes OffsetRange objects, got None"),
        ({"offsetRanges": RANGE}, "offsetRanges takes a list"),
        ({"offsetRanges": [("t", 0, 0, 10)]}, "offsetRanges takes OffsetRange objects"),
        ({"locationStrategy": None}, "PreferConsistent"),
        ({"keyDecoder": "utf-8"}, "keyDecoder must be a function"),
        ({"valueDecoder": 1}, "valueDecoder must be a function"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        KafkaUtils.createRDD(**{"sc": None, "kafkaParams": NOBODY, "offsetRanges": [RANGE], **arguments})
