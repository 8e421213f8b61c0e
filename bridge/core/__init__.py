"""The pure heart: values in, values out; no asyncio, I/O, clock, randomness or logging."""
