"""One IMDS a VM for a whole fleet, under the path prefix /vm/N.

Each VM stands alone, outside any scale set, so its document shows its own events only. The rules of
Azure are the simulator's business; this one counts, and must not be what is measured.
"""

import asyncio
import time
from collections import Counter
from typing import Any, cast

import msgspec

_NOT_BEFORE = "Mon, 11 Apr 2050 22:26:58 GMT"
_PROVIDER = "/subscriptions/s/resourceGroups/fleet/providers/Microsoft.Compute"
REQUEST_BYTES_MAX = 64 * 1024


def vm_name(number: int) -> str:
    return f"fleet_{number}"


class Machines:
    def __init__(self, count: int) -> None:
        self.count = count
        self.polls = 0
        self.polled: set[int] = set()  # VMs that have polled at least once
        self.posts: Counter[str] = Counter()  # StartRequests by EventId
        self.changed_at = 0.0
        self._round = 0
        self._documents: dict[int, bytes] = {}
        self._server: asyncio.Server | None = None
        self._quiet = _answer(b'{"DocumentIncarnation":1,"Events":[]}')

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Exchange(self), host, port, backlog=4096)
        return f"http://{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def terminate_all(self) -> str:
        """Every VM gets a Terminate of its own, in the place of the one before.

        Returns how the EventIds of this round begin.
        """
        self._round += 1
        self._documents = {number: self._terminate(number) for number in range(self.count)}
        self.changed_at = time.monotonic()
        return self._prefix

    @property
    def _prefix(self) -> str:
        return f"{self._round:08x}-"

    def event_id(self, number: int) -> str:
        return f"{self._prefix}0000-4000-8000-{number:012d}"

    def answer(self, request: bytes) -> bytes:
        target = request.split(b" ", 2)[1]
        number = int(target.split(b"/", 3)[2])
        if request.startswith(b"POST"):
            return self._approve(request.partition(b"\r\n\r\n")[2])
        if b"/instance" in target:
            return _answer(msgspec.json.encode(_identity(number)))
        self.polls += 1
        self.polled.add(number)
        return self._documents.get(number, self._quiet)

    def _approve(self, body: bytes) -> bytes:
        for request in msgspec.json.decode(body)["StartRequests"]:
            self.posts[request["EventId"]] += 1
        return _answer(b"")

    def _terminate(self, number: int) -> bytes:
        event = {
            "EventId": self.event_id(number),
            "EventType": "Terminate",
            "ResourceType": "VirtualMachine",
            "Resources": [vm_name(number)],
            "EventStatus": "Scheduled",
            "NotBefore": _NOT_BEFORE,
            "Description": "Virtual machine is being deleted.",
            "EventSource": "User",
            "DurationInSeconds": -1,
        }
        document = {"DocumentIncarnation": 1 + self._round, "Events": [event]}
        return _answer(msgspec.json.encode(document))


def _identity(number: int) -> dict[str, Any]:
    name = vm_name(number)
    compute = {
        "name": name,
        "vmId": f"00000000-0000-4000-8000-{number:012d}",
        "resourceId": f"{_PROVIDER}/virtualMachines/{name}",
        "resourceGroupName": "fleet",
        "subscriptionId": "s",
        "location": "westeurope",
    }
    return {"compute": compute}


def _answer(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class _Exchange(asyncio.Protocol):
    """One connection: requests in, answers out, as they come."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._request += data
        head, end, body = self._request.partition(b"\r\n\r\n")
        if len(self._request) > REQUEST_BYTES_MAX:
            self._transport.abort()
        elif end and len(body) >= _length(head):
            request, self._request = self._request, b""
            self._transport.write(self._machines.answer(request))


def _length(head: bytes) -> int:
    before, found, after = head.partition(b"Content-Length: ")
    return int(after.split(b"\r\n", 1)[0]) if found and before else 0
