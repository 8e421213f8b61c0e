"""What can go wrong, split by what the caller must do about it.

    BridgeError
    ├── ConfigError        cannot start: say where and why, exit 2
    ├── ImdsUnavailable    no answer, or one that says "later": back off, ask again
    ├── SinkUnavailable    broker away or no ack in time: back off, publish the same rows again
    ├── SinkRejected       broker refuses this message: keep or park the row, say why
    ├── ServiceError       installing, starting or stopping failed: say what to do, exit 1
    └── StoreError         the ledger cannot be trusted: stop
        ├── StoreLocked    another agent holds it
        └── StoreUnwritable  disk full or read-only: go on without approvals

Messages carry the operation, the object and a hint for the operator. Log or raise, never both.
"""


class BridgeError(Exception):
    """Root of everything this program raises on purpose."""


class ConfigError(BridgeError):
    """The configuration cannot be used; the message names the key and its place."""


class ImdsUnavailable(BridgeError):
    """IMDS gave no usable answer."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class SinkUnavailable(BridgeError):
    """The broker is away or did not acknowledge in time. The first `delivered` rows are safe."""

    def __init__(self, message: str, *, delivered: int = 0) -> None:
        super().__init__(message)
        self.delivered = delivered


class SinkRejected(BridgeError):
    """The broker answered, and refused row number `delivered` of the batch.

    `permanent` says that the same bytes can never pass (too large), so the row is parked;
    otherwise it stays at the head of the outbox until the broker's owner changes his mind.
    """

    def __init__(self, message: str, *, delivered: int = 0, permanent: bool = False) -> None:
        super().__init__(message)
        self.delivered = delivered
        self.permanent = permanent


class ServiceError(BridgeError):
    """The agent could not be installed, started, stopped or removed on this VM."""


class StoreError(BridgeError):
    """The ledger is damaged or its guarantees do not hold."""


class StoreLocked(StoreError):
    """Another process holds the ledger."""


class StoreUnwritable(StoreError):
    """The disk takes no more writes; what was committed is still readable."""
