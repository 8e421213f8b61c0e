"""An AMQP session (amqp-core-transport 2.5): its links and its two transfer windows."""

import struct
from typing import TYPE_CHECKING, Any

from tests.support.eventhubs_server.codec import Described
from tests.support.eventhubs_server.frames import FRAME_BYTES_MAX, Frame, Kind, amqp_error
from tests.support.eventhubs_server.links import Link, LinkRefusedError, OutgoingLink, Responder

if TYPE_CHECKING:
    from tests.support.eventhubs_server.connection import Connection

WINDOW = 5000  # transfers; this and the handle limit are what the service offers
HANDLE_MAX = 255
_TRANSFER_OVERHEAD_BYTES = 256  # more than a transfer needs around its payload


class Session:
    def __init__(self, connection: "Connection", begin: Frame) -> None:
        self.connection = connection
        self.channel = begin.channel
        self.links: dict[int, Link] = {}
        #: Where answers go, by node: `$cbs`, `$management`.
        self.responders: dict[str, Responder] = {}
        self._next_delivery_id = 0
        self._next_outgoing_id = 0
        self._next_incoming_id: int = begin["next_outgoing_id"]
        self._window_end: int = begin["incoming_window"]
        self.send(
            Kind.BEGIN,
            remote_channel=begin.channel,
            next_outgoing_id=self._next_outgoing_id,
            incoming_window=WINDOW,
            outgoing_window=WINDOW,
            handle_max=HANDLE_MAX,
        )

    def send(self, kind: Kind, payload: bytes = b"", **fields: Any) -> None:
        self.connection.send(Frame(kind, fields, self.channel, payload))

    def send_flow(self, **link_fields: Any) -> None:
        self.send(
            Kind.FLOW,
            next_incoming_id=self._next_incoming_id,
            incoming_window=WINDOW,
            next_outgoing_id=self._next_outgoing_id,
            outgoing_window=WINDOW,
            **link_fields,
        )

    def transfer(self, handle: int, tag: int, payload: bytes) -> bool:
        """Send one message in as many frames as it needs; False if the window has no room."""
        chunk_bytes = (
            min(FRAME_BYTES_MAX, self.connection.remote_frame_bytes_max) - _TRANSFER_OVERHEAD_BYTES
        )
        chunks = [payload[at : at + chunk_bytes] for at in range(0, len(payload), chunk_bytes)]
        if self._next_outgoing_id + len(chunks) > self._window_end:
            return False
        for number, chunk in enumerate(chunks):
            self.send(
                Kind.TRANSFER,
                payload=chunk,
                handle=handle,
                delivery_id=None if number else self._next_delivery_id,
                delivery_tag=None if number else struct.pack(">I", tag),
                message_format=0,
                settled=True,
                more=number + 1 < len(chunks),
            )
        self._next_delivery_id += 1
        self._next_outgoing_id += len(chunks)
        return True

    def handle(self, frame: Frame) -> None:
        link = self.links.get(frame["handle"])
        match frame.kind:
            case Kind.ATTACH:
                self._attach(frame)
            case Kind.FLOW:
                self._flow(frame, link)
            case Kind.TRANSFER:
                self._next_incoming_id += 1
                if link is not None:
                    link.on_transfer(frame)
            case Kind.DETACH if link is not None:
                self.detach(link)
        # Frames for a link that we have just detached cross with our detach: they mean nothing.

    def detach(self, link: Link, error: Described | None = None) -> None:
        del self.links[link.handle]
        link.closed()
        self.send(Kind.DETACH, handle=link.handle, closed=True, error=error)

    def closed(self) -> None:
        while self.links:
            self.links.popitem()[1].closed()

    def pump(self) -> None:
        for link in self.links.values():
            if isinstance(link, OutgoingLink):
                link.pump()

    def _flow(self, frame: Frame, link: Link | None) -> None:
        self._window_end = (frame["next_incoming_id"] or 0) + frame["incoming_window"]
        if link is not None:
            link.on_flow(frame)
        self.pump()

    def _attach(self, frame: Frame) -> None:
        broker = self.connection.broker
        broker.counters.links += 1
        try:
            link = broker.open_link(self, frame)
        except LinkRefusedError as refusal:
            broker.counters.links_refused[refusal.condition] += 1
            self._refuse_attach(frame, refusal)
            return
        self.links[link.handle] = link
        self._answer_attach(frame, source=frame["source"], target=frame["target"])
        link.opened()

    def _refuse_attach(self, frame: Frame, refusal: LinkRefusedError) -> None:
        # amqp-core-transport 2.6.3: our own terminus is null, and a detach follows.
        if frame["role"]:
            self._answer_attach(frame, target=frame["target"])
        else:
            self._answer_attach(frame, source=frame["source"])
        error = amqp_error(refusal.condition, refusal.description)
        self.send(Kind.DETACH, handle=frame["handle"], closed=True, error=error)

    def _answer_attach(self, frame: Frame, **termini: Any) -> None:
        we_send = frame["role"]
        self.send(
            Kind.ATTACH,
            name=frame["name"],
            handle=frame["handle"],
            role=not frame["role"],
            snd_settle_mode=frame["snd_settle_mode"],
            rcv_settle_mode=frame["rcv_settle_mode"],
            initial_delivery_count=0 if we_send else None,
            max_message_size=self.connection.broker.message_bytes_max(frame),
            **termini,
        )
