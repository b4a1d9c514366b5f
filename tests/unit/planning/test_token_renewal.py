"""When delegation tokens are renewed and replaced, on a clock of the test."""

from __future__ import annotations

import pytest

from pyspark_kafka_direct.planning.token_renewal import TokenLifetime

DAY = 86_400.0
NOW = 1_800_000_000.0


def created(period: float = DAY, lifetime: float = 7 * DAY, *, skew: float = 0.0) -> TokenLifetime:
    """Return a token of a broker whose clock is ahead of the driver's."""
    issued = round((NOW + skew) * 1000)
    return TokenLifetime.created(issued, issued + round(period * 1000), issued + round(lifetime * 1000), NOW)


@pytest.mark.parametrize("skew", [0.0, 3600.0, -3600.0])
def test_a_token_is_renewed_after_three_quarters_of_its_period(skew: float) -> None:
    lifetime = created(skew=skew)
    assert lifetime.renew_at == pytest.approx(NOW + 0.75 * DAY, abs=0.01)
    renewed_at = lifetime.renew_at + 5
    renewed = lifetime.renewed(round((renewed_at + skew + DAY) * 1000), renewed_at)
    assert renewed.expires_at == pytest.approx(renewed_at + DAY, abs=0.01)
    assert renewed.renew_at == pytest.approx(renewed_at + 0.75 * DAY, abs=0.01)
    assert lifetime.replace_at == lifetime.expires_at, "unless it is renewed"
    twice = renewed.renewed(round((NOW + skew + 5 * DAY) * 1000), NOW + 4 * DAY)
    assert twice.replace_at == pytest.approx(NOW + 3.5 * DAY, abs=0.01)


def test_a_token_that_has_reached_its_end_is_not_renewed_any_more() -> None:
    lifetime = created()
    ends_ms = round((NOW + 7 * DAY) * 1000)
    assert lifetime.renewed(ends_ms, NOW + 6.5 * DAY).renew_at == float("inf")
    once = created(DAY, DAY)
    assert (once.renew_at, once.replace_at) == (float("inf"), NOW + DAY / 2)


def test_an_expired_token_is_replaced() -> None:
    """Such as one of a driver that was suspended."""
    assert created(60.0).replace_at == NOW + 60.0
