"""The arguments that ``createRDD`` rejects before it sends any request."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_kafka_direct import OptionError
from pyspark_kafka_direct.direct import KafkaUtils, OffsetRange

RANGE = OffsetRange.create("t", 0, 0, 10)
NO_BROKER = {"bootstrap.servers": "127.0.0.1:1"}  # a request would raise BrokerError


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
def test_invalid_arguments_are_rejected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        KafkaUtils.createRDD(**{"sc": None, "kafkaParams": NO_BROKER, "offsetRanges": [RANGE], **arguments})
