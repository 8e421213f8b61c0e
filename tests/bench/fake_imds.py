"""An IMDS that costs next to nothing, and notes when a changed document leaves it."""

import asyncio
import json
import time
from typing import Any, cast

IDENTITY = {
    "compute": {
        "name": "web_3",
        "vmId": "5c08b38e-0000-4000-8000-000000000003",
        "resourceId": "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Compute"
        "/virtualMachineScaleSets/web/virtualMachines/3",
        "vmScaleSetName": "web",
        "zone": "2",
        "location": "westeurope",
        "resourceGroupName": "rg",
        "subscriptionId": "s",
    }
}

TOKEN = "bench-token"  # of the managed identity


def scheduled_event(number: int, description: str = "") -> dict[str, Any]:
    return {
        "EventId": f"602d9444-d2cd-49c7-8624-{number:012d}",
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": ["web_3"],
        "EventStatus": "Scheduled",
        "NotBefore": "Mon, 11 Apr 2050 22:26:58 GMT",
        "Description": description or "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": 9,
    }


class FakeImds:
    def __init__(self) -> None:
        self.polls = 0
        self.first_poll_at: float | None = None
        self.changed_at: float | None = None  # when the newest document first left
        self.posted_at: dict[str, float] = {}
        self._incarnation = 0
        self._unseen = False
        self.set([])

    def set(self, events: list[dict[str, Any]]) -> None:
        self._incarnation += 1
        document = {"DocumentIncarnation": self._incarnation, "Events": events}
        self.document = json.dumps(document).encode()
        self._answer = _answer(self.document)
        self._unseen, self.changed_at = True, None

    def answer(self, request: bytes) -> bytes:
        if request.startswith(b"POST"):
            body = json.loads(request.partition(b"\r\n\r\n")[2])
            self.posted_at[body["StartRequests"][0]["EventId"]] = time.perf_counter()
            return _answer(b"")
        if b"/metadata/instance" in request:
            return _answer(json.dumps(IDENTITY).encode())
        if b"/metadata/identity/oauth2/token" in request:
            return _answer(json.dumps(_token()).encode())
        now = time.perf_counter()
        self.polls += 1
        self.first_poll_at = self.first_poll_at or now
        if self._unseen:
            self._unseen, self.changed_at = False, now
        return self._answer

    async def start(self) -> str:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Exchange(self), "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self._server.close()


class _Exchange(asyncio.Protocol):
    def __init__(self, imds: FakeImds) -> None:
        self._imds = imds
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._request += data
        head, end, body = self._request.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            return
        request, self._request = self._request, b""
        self._transport.write(self._imds.answer(request))


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _token() -> dict[str, str]:
    return {
        "access_token": TOKEN,
        "expires_in": "86400",
        "expires_on": str(int(time.time()) + 86_400),
        "resource": "https://eventhubs.azure.net",
        "token_type": "Bearer",
    }


def _answer(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body
