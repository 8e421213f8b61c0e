"""A small Event Hubs-compatible AMQP 1.0 server, so that the real client is tested over a socket.

From the bottom: `codec` and `frames` and `messages` are AMQP's bytes; `store`, `access` and `faults`
are state; `links`, `session` and `connection` are AMQP's machinery; `requests` and `broker` are what
Event Hubs does; `server` is the port. Built from what the client sends and from frames of the real
service quoted in public issues; it was never compared with the service itself.
"""

from tests.support.eventhubs_server.faults import Counters, Faults
from tests.support.eventhubs_server.server import EventHubsServer
from tests.support.eventhubs_server.store import Hub, StoredEvent

__all__ = ["Counters", "EventHubsServer", "Faults", "Hub", "StoredEvent"]
