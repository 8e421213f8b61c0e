"""What the client library raised, as a text that says what is wrong and what to do about it.

The library's exceptions end here. It has no type for "missing role" or "unknown hub", so the AMQP
condition and the service's own words decide.
"""

import re

import msgspec
from azure.core.exceptions import AzureError
from azure.eventhub.exceptions import EventHubError

from bridge.errors import ConfigError

# What making and using a client may raise. The library turns nearly everything into its own
# EventHubError; a ConfigError is a secret's file that cannot be read just now.
FAILURES = (EventHubError, AzureError, OSError, ValueError, ConfigError)
_SAID_CHARS_MAX = 300
_LABELS = ("Error condition: ErrorCondition.", "Error: ")
# Our own words, and those of azure-identity; an HTTP status of IMDS may stand behind them.
_NO_TOKEN = re.compile("gives no token|ManagedIdentityCredential")
_BUSY = ("server-busy", "timeout", "internal-error", "operation-cancelled")


class Stalled(OSError):
    """The hub answers, but gives nothing to read; the library does not tell why."""

    def __init__(self, partition: str, group: str) -> None:
        super().__init__(f"partition {partition} cannot be read in consumer group {group}")
        self.partition = partition
        self.group = group


class Problem(msgspec.Struct, frozen=True):
    text: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.text}. {self.remedy}"


def explain(error: BaseException, *, hub: str, host: str, by_identity: bool) -> Problem:
    """The first kind that fits; the service's own words are part of the text."""
    if isinstance(error, ConfigError):
        return Problem(str(error), "Put the connection string into that file.")
    if isinstance(error, Stalled):
        return Problem(
            f"{host}, hub {hub}: {error}",
            f"Check that the group {error.group} exists, that no more than five readers share "
            "it, and that the identity or key may listen (role Azure Event Hubs Data Receiver).",
        )
    said, condition = _said(error), condition_of(error)
    if isinstance(error, AzureError) or _NO_TOKEN.search(said):
        return Problem(
            f"no managed identity token: {said}",
            "Assign an identity to the VM; for a user-assigned one set "
            "eventhubs.identity_client_id to its client id.",
        )
    if re.search(r"\b401\b", said) or "claim(s)" in said or condition == "unauthorized-access":
        return _explain_refusal(said, hub, host, by_identity=by_identity)
    if re.search(r"\b404\b", said) or condition == "not-found":
        return Problem(
            f"{host} knows no hub {hub}: {said}",
            "Create the hub, or correct eventhubs.events_hub and eventhubs.commands_hub.",
        )
    if condition in _BUSY:
        return Problem(
            f"{host} is busy: {said}", "If it lasts, add throughput units to the namespace."
        )
    return _explain_network(error, said, host)


def _explain_refusal(said: str, hub: str, host: str, *, by_identity: bool) -> Problem:
    """A token that is not believed, or one that is and may not do this."""
    lacks_right = "claim(s)" in said
    if by_identity and lacks_right:
        return Problem(
            f"the managed identity may not use hub {hub}: {said}",
            "Give it the role Azure Event Hubs Data Sender on the events hub and Azure Event "
            "Hubs Data Receiver on the commands hub; roles take minutes to apply.",
        )
    if by_identity:
        return Problem(
            f"{host} refuses the managed identity for hub {hub}: {said}",
            "Check that the namespace belongs to the tenant of this VM, and its roles.",
        )
    if lacks_right:
        return Problem(
            f"the key may not use hub {hub}: {said}",
            "Take one with the right Send for the events hub and Listen for the commands hub.",
        )
    return Problem(
        f"{host} refuses the key for hub {hub}: {said}",
        "Copy the connection string again: the key is wrong or was rotated.",
    )


def _explain_network(error: BaseException, said: str, host: str) -> Problem:
    if isinstance(error, ValueError):
        return Problem(
            f"the connection string cannot be used: {said}",
            "It must read Endpoint=sb://NAMESPACE/;SharedAccessKeyName=NAME;SharedAccessKey=KEY.",
        )
    if "CERTIFICATE_VERIFY_FAILED" in said or "certificate verify failed" in said:
        return Problem(
            f"the certificate of {host} is not trusted: {said}",
            "Behind a proxy that opens TLS, set eventhubs.ca_file to its authority.",
        )
    if "Name or service not known" in said or "getaddrinfo" in said or "resolution" in said:
        return Problem(
            f"{host} has no address: {said}",
            "Check eventhubs.namespace and the VM's DNS (a private endpoint needs its own zone).",
        )
    return Problem(
        f"no connection to {host}: {said}",
        "Check the network: AMQP needs port 5671 out; where that is blocked, set "
        'eventhubs.transport = "websocket" (port 443).',
    )


def is_too_large(error: EventHubError) -> bool:
    return "message-size-exceeded" in f"{error.error} {error.message}"


def is_busy(error: EventHubError) -> bool:
    """The service asks for patience; the message itself is fine."""
    return condition_of(error) in _BUSY


def condition_of(error: BaseException) -> str:
    """The AMQP condition without its prefix, such as `not-found`; empty when there is none."""
    found = getattr(error, "error", None)
    if found:
        return str(found)
    for condition in ("unauthorized-access", "not-found", *_BUSY):
        if f":{condition}" in str(error):
            return condition
    return ""


def _said(error: BaseException) -> str:
    """The library's text in one line, without the labels and repetitions that it likes."""
    lines = (line.strip().removeprefix("Error Description: ") for line in str(error).splitlines())
    parts = dict.fromkeys(line for line in lines if line and not line.startswith(_LABELS))
    silence = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    return "; ".join(parts)[:_SAID_CHARS_MAX] or silence
