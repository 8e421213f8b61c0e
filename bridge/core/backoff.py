"""How long to wait after the n-th failure in a row. Randomness comes in as an argument."""


def full_jitter(
    attempt: int, random01: float, *, base_s: float = 0.2, cap_s: float = 30.0
) -> float:
    """A delay in (0, cap]: the whole range is random, so that a fleet does not return in step."""
    ceiling = min(cap_s, base_s * 2.0 ** min(attempt, 30))
    return max(ceiling * random01, base_s * 0.25)


def imds_delay_s(
    status: int | None,
    attempt: int,
    *,
    interval_s: float,
    retry_after_s: float | None,
    cap_s: float,
) -> float:
    """When to ask IMDS again after a failure.

    410 means "retry within 70 s" (5, 10, 20, 40 s); 400 with every api-version refused is a
    matter for a person, so six times a minute is enough; the rest doubles from the poll interval.
    """
    if status == 400:
        return 10.0
    if status == 410:
        return 5.0 * 2.0 ** min(attempt, 3)
    delay: float = min(cap_s, max(interval_s, interval_s * 2.0 ** min(attempt, 16)))
    if status == 429:
        return max(1.0, min(retry_after_s or 0.0, 30.0), delay)
    return delay
