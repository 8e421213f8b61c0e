"""The test server, seen through the unmodified azure-eventhub client over a real socket."""

import asyncio
import gc
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, Self
from uuid import UUID

import pytest
from azure.core.credentials import AccessToken
from azure.eventhub import EventData, TransportType
from azure.eventhub.aio import EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import (
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    EventDataSendError,
    EventHubError,
    OperationTimeoutError,
)

from tests.support.eventhubs_server import EventHubsServer
from tests.support.eventhubs_server.codec import (
    Array,
    Byte,
    DecodeError,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    decode,
    encode,
)
from tests.support.eventhubs_server.faults import Faults, Kill, KillMoment
from tests.support.waiting import until

HUB = "events"
DEADLINE_S = 15
#: A client that fails soon: no retries but the one that it always makes.
SOON: dict[str, Any] = {
    "retry_total": 0,
    "retry_mode": "fixed",
    "retry_backoff_factor": 0.05,
}

# The client does not close every connection that was cut off under it.
pytestmark = pytest.mark.filterwarnings("ignore:(?i)unclosed|loop is closed:ResourceWarning")


@pytest.fixture
async def server() -> AsyncIterator[EventHubsServer]:
    async with EventHubsServer() as server:
        server.add_hub(HUB)
        yield server


@pytest.fixture
async def producer(server: EventHubsServer) -> AsyncIterator[EventHubProducerClient]:
    async with make_producer(server) as producer:
        yield producer


def make_producer(
    server: EventHubsServer, hub: str = HUB, **options: Any
) -> EventHubProducerClient:
    conn_str: str = options.pop("conn_str", None) or server.connection_string(hub)
    return EventHubProducerClient.from_connection_string(conn_str, **(SOON | options))


async def send(producer: EventHubProducerClient, body: bytes = b"hello", **options: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await producer.send_event(EventData(body), **options)


class Reader:
    """A running consumer client, and what it was told."""

    def __init__(self, server: EventHubsServer, group: str, **options: Any) -> None:
        self.events: list[EventData] = []
        self.errors: list[Exception] = []
        self._changed = asyncio.Event()
        self._client = EventHubConsumerClient.from_connection_string(
            server.connection_string(HUB), group
        )
        options = {"partition_id": "0", "starting_position": "-1"} | options
        self._task = asyncio.create_task(
            self._client.receive(self._on_event, on_error=self._on_error, **options)
        )

    @property
    def bodies(self) -> list[bytes]:
        return [event.body_as_str().encode() for event in self.events]

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def wait_for_events(self, number: int) -> None:
        await self.wait_for(lambda: len(self.events) >= number)

    async def wait_for_error(self) -> Exception:
        await self.wait_for(lambda: bool(self.errors))
        return self.errors[0]

    async def close(self) -> None:
        """Take a second: the client sleeps that long."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._client.close()

    async def _on_event(self, _: Any, event: EventData | None) -> None:
        assert event is not None, "only given with max_wait_time"
        self.events.append(event)
        self._changed.set()

    async def _on_error(self, _: Any, error: Exception) -> None:
        self.errors.append(error)
        self._changed.set()


class Read(Protocol):
    """Start a reader, of partition 0 from its beginning unless told otherwise."""

    def __call__(self, *, group: str = "$Default", **options: Any) -> Reader: ...


@pytest.fixture
async def read(server: EventHubsServer) -> AsyncIterator[Read]:
    readers: list[Reader] = []

    def start(*, group: str = "$Default", **options: Any) -> Reader:
        readers.append(Reader(server, group, **options))
        return readers[-1]

    yield start
    await asyncio.gather(*(reader.close() for reader in readers))


@pytest.fixture(autouse=True)
def leaks_of_the_client(request: pytest.FixtureRequest) -> Iterator[None]:
    """Meet the sockets that the client forgets, while their warnings are still ignored."""
    yield
    if asyncio.iscoroutinefunction(request.function):
        gc.collect()


@pytest.mark.parametrize(
    "value",
    [
        *(
            None,
            True,
            False,
            0,
            -1,
            2**40,
            1.5,
            "",
            "é",
            b"\x00S",
            [],
            [1, ["a"]],
            {"a": {Symbol("b"): 1}},
        ),
        *(
            UByte(255),
            UShort(65535),
            UInt(2**32 - 1),
            ULong(2**64 - 1),
            Byte(-1),
            Short(-2),
            Int(-3),
        ),
        *(Float(0.5), Timestamp(1), UUID(int=7), Symbol("s"), Array(["0", "1"]), Array()),
        Described(0x24, []),
        Described(Symbol("apache.org:selector-filter:string"), "x"),
    ],
)
def test_codec_round_trip_keeps_value_and_type(value: Any) -> None:
    """What is encoded decodes to an equal value of the same AMQP type, and ends where it ends."""
    raw = encode(value)
    result, end = decode(raw + b"rest")

    assert value == result
    assert type(value) is type(result)
    assert len(raw) == end


@pytest.mark.parametrize(
    "raw", [b"", b"\xa1\x05ab", b"\x70\x00", b"\x74\x00\x00\x00\x00", b"\xa1\x01\xff"]
)
def test_codec_broken_bytes_raise_decode_error(raw: bytes) -> None:
    """Bytes that are cut short, unknown or not text are a DecodeError and nothing else."""
    with pytest.raises(DecodeError):
        decode(raw)


def test_faults_are_used_up_in_order_and_by_node() -> None:
    """A rule meets only its node, as often as told, and `clear` forgets the rest."""
    faults = Faults()
    faults.kill("before_store", hub="Other")
    faults.refuse_link(node="$cbs")
    faults.delay(1)

    assert faults.take("link", HUB) is None
    assert faults.take("link", "$cbs") is not None
    assert Kill("before_store") == faults.take("transfer", "other")
    assert faults.take("transfer", "other") == faults.take("transfer", HUB)
    faults.clear()
    assert faults.take("transfer", HUB) is None


async def test_properties_describe_hub_and_partitions(
    server: EventHubsServer, producer: EventHubProducerClient
) -> None:
    """$management answers with partition ids and with the end of each partition."""
    stored = server.hub(HUB).put(b"one", partition="1")

    properties = await producer.get_eventhub_properties()
    empty, filled = await asyncio.gather(
        producer.get_partition_properties("0"), producer.get_partition_properties("1")
    )

    assert (properties["eventhub_name"], properties["partition_ids"]) == (HUB, ["0", "1"])
    assert empty["is_empty"]
    assert stored.offset == filled["last_enqueued_offset"]
    assert stored.enqueued_at == filled["last_enqueued_time_utc"]


async def test_send_batch_is_stored_as_single_events_with_all_fields(
    server: EventHubsServer, producer: EventHubProducerClient
) -> None:
    """A batch is unpacked in order, into one partition, with properties and key."""
    batch = await producer.create_batch(partition_key="vm-é")
    for number in range(3):
        event = EventData(b"\x00S%d" % number)
        event.properties = {"type": "notice", "number": number}
        event.content_type = "application/json"
        event.message_id = f"id-{number}"
        event.correlation_id = "cause"
        batch.add(event)
    await producer.send_batch(batch)

    stored = server.hub(HUB).events()
    first = stored[0]
    assert [event.body for event in stored] == [b"\x00S0", b"\x00S1", b"\x00S2"]
    assert [event.sequence_number for event in stored] == [0, 1, 2]
    assert len({event.partition for event in stored}) == 1
    assert first.application_properties == {"type": "notice", "number": 0}
    assert (
        first.content_type,
        first.message_id,
        first.correlation_id,
    ) == ("application/json", "id-0", "cause")
    assert first.partition_key == "vm-é"
    assert (server.counters.transfers, server.counters.batches, server.counters.events) == (1, 1, 3)


async def test_send_event_partition_is_chosen_by_key_id_or_turn(
    server: EventHubsServer, producer: EventHubProducerClient
) -> None:
    """The same key meets the same partition, an id its own, and neither takes turns."""
    for _ in range(3):
        await send(producer, b"keyed", partition_key="a key")
    await send(producer, b"direct", partition_id="1")
    await send(producer, b"any")
    await send(producer, b"any")

    stored = server.hub(HUB).events()
    assert len({event.partition for event in stored if event.body == b"keyed"}) == 1
    assert [event.partition for event in stored if event.body == b"direct"] == ["1"]
    assert {"0", "1"} == {event.partition for event in stored if event.body == b"any"}


async def test_receive_starts_where_asked(server: EventHubsServer, read: Read) -> None:
    """Position and inclusiveness select the first event; then all come once, in order.

    Prefetch is small, so that credit is renewed many times.
    """
    hub = server.hub(HUB)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(100):
        hub.put(b"%d" % number, partition="0", enqueued_at=start + timedelta(seconds=number))
    second = hub.events("0")[1]
    cases: list[tuple[Any, bool, int]] = [
        ("-1", False, 0),
        (second.offset, False, 2),
        (second.offset, True, 1),
        (second.sequence_number, False, 2),
        (second.enqueued_at, True, 1),
        ("@latest", False, 100),
    ]
    hub.consumer_groups.update(f"g{number}" for number in range(len(cases)))

    readers = [
        read(
            group=f"g{number}",
            prefetch=15,
            starting_position=position,
            starting_position_inclusive=inclusive,
        )
        for number, (position, inclusive, _) in enumerate(cases)
    ]
    await until(lambda: server.receivers(HUB) == len(cases))
    hub.put(b"100", partition="0")
    for reader, (_, _, first) in zip(readers, cases, strict=True):
        await reader.wait_for_events(101 - first)

    for reader, (_, _, first) in zip(readers, cases, strict=True):
        assert [b"%d" % number for number in range(first, 101)] == reader.bodies


async def test_two_consumers_both_get_every_event_whole(
    server: EventHubsServer, producer: EventHubProducerClient, read: Read
) -> None:
    """Readers of one group do not share: each gets all partitions, also events of many frames."""
    large = b"0123456789abcdef" * 20_000
    one, other = read(partition_id=None), read(partition_id=None)
    event = EventData(large)
    event.properties = {"type": "notice"}
    await producer.send_event(event, partition_id="0")
    await send(producer, b"small", partition_id="1")
    await asyncio.gather(one.wait_for_events(2), other.wait_for_events(2))

    received = next(event for event in one.events if event.properties)
    assert {large, b"small"} == set(one.bodies) == set(other.bodies)
    assert received.properties == {b"type": b"notice"}
    assert received.enqueued_time == server.hub(HUB).events("0")[0].enqueued_at


async def test_higher_owner_level_evicts_and_lower_ones_are_refused(
    server: EventHubsServer, read: Read
) -> None:
    """An epoch receiver takes the partition over; lower and missing levels cannot come in."""
    server.hub(HUB).put(b"one", partition="0")
    old = read(owner_level=1)
    await old.wait_for_events(1)

    new = read(owner_level=2)
    await new.wait_for_events(1)
    read(owner_level=1)
    read()
    await until(lambda: server.counters.links_refused["amqp:link:stolen"] >= 2)
    eviction = await old.wait_for_error()

    assert isinstance(eviction, ConnectionLostError)
    assert "amqp:link:stolen" in str(eviction)
    assert not new.errors
    assert server.receivers(HUB) == 1


async def test_sixth_receiver_is_refused_until_one_leaves(
    server: EventHubsServer, read: Read
) -> None:
    """Five non-epoch receivers fill a partition and group; a place is free when one closes."""
    server.hub(HUB).put(b"one", partition="0")
    five = [read() for _ in range(5)]
    await asyncio.gather(*(reader.wait_for_events(1) for reader in five))

    sixth = read()
    # The client does not report this error; it tries again, about twice a second.
    await until(lambda: bool(server.counters.links_refused))
    was_refused = not sixth.events
    await five[0].close()
    await sixth.wait_for_events(1)

    assert was_refused
    assert set(server.counters.links_refused) == {"amqp:resource-limit-exceeded"}


async def test_wrong_key_is_refused_at_put_token(server: EventHubsServer) -> None:
    """A token signed with another key is answered with 401, and no hub link is opened."""
    conn_str = server.connection_string(HUB, key="d3Jvbmc=")
    async with make_producer(server, conn_str=conn_str) as producer:
        with pytest.raises(AuthenticationError, match="401"):
            await send(producer)

    assert 0 < server.counters.put_tokens_refused == server.counters.put_tokens
    assert server.counters.transfers == 0


async def test_key_without_the_right_is_refused_at_the_link(server: EventHubsServer) -> None:
    """A listen-only key gets its token accepted but no link to publish on."""
    server.add_key("listener", "bGlzdGVu", rights=("Listen",))
    conn_str = server.connection_string(HUB, key_name="listener")
    async with make_producer(server, conn_str=conn_str) as producer:
        with pytest.raises(EventHubError, match="amqp:unauthorized-access"):
            await send(producer)

    assert server.counters.put_tokens_refused == 0
    assert not server.hub(HUB).events()


async def test_unknown_hub_and_group_are_refused(server: EventHubsServer, read: Read) -> None:
    """What does not exist is refused: a hub by $management, a consumer group at the link."""
    async with make_producer(server, hub="nowhere") as producer:
        with pytest.raises(ConnectError, match="404"):
            await send(producer)
    read(group="nobody")
    await until(lambda: bool(server.counters.links_refused))

    assert set(server.counters.links_refused) == {"amqp:not-found"}


async def test_oversize_event_is_rejected_and_batches_know_the_limit() -> None:
    """The link tells its limit to batches; a single event above it is refused and not stored."""
    async with EventHubsServer(message_bytes_max=10_000) as server:
        server.add_hub(HUB)
        async with make_producer(server) as producer:
            batch = await producer.create_batch()
            with pytest.raises(EventDataSendError, match="LinkMessageSizeExceeded"):
                await send(producer, b"x" * 10_001)
            await send(producer, b"x" * 9_000)

    assert batch.max_size_in_bytes == 10_000
    assert [len(event.body) for event in server.hub(HUB).events()] == [9_000]


async def test_refuse_rejects_transfers_with_the_given_condition(
    server: EventHubsServer, producer: EventHubProducerClient
) -> None:
    """A refused transfer is not stored; after the given number of times the next one is."""
    server.faults.refuse("com.microsoft:argument-error", times=2)

    with pytest.raises(EventDataSendError, match="argument-error"):
        await send(producer, b"refused")
    await send(producer, b"accepted")

    assert [event.body for event in server.hub(HUB).events()] == [b"accepted"]
    assert server.counters.transfers == 3


async def test_refuse_link_and_token_each_fail_one_attempt(server: EventHubsServer) -> None:
    """The first attempt fails on its token, the second on its link, the third succeeds."""
    server.faults.refuse_token()
    server.faults.refuse_link("com.microsoft:server-busy")
    async with make_producer(server, retry_total=2) as producer:
        await send(producer)

    assert server.counters.put_tokens_refused == 1
    assert server.counters.links_refused == {"com.microsoft:server-busy": 1}
    assert len(server.hub(HUB).events()) == 1


async def test_unanswered_token_leaves_the_client_waiting(server: EventHubsServer) -> None:
    """A put-token that is never answered holds the client until its caller gives up."""
    server.faults.drop_token(times=None)
    async with make_producer(server) as producer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.6):
                await producer.send_event(EventData(b"hello"))

    assert server.counters.put_tokens == 1


async def test_drop_never_settles(server: EventHubsServer) -> None:
    """A dropped transfer times out at the client, and is in the hub only if told so."""

    async def send_in_vain(hub: str) -> None:
        server.add_hub(hub)
        server.faults.drop(stored=hub == "stored", times=None, hub=hub)
        async with make_producer(server, hub) as producer:
            await (
                producer.create_batch()
            )  # opens the link, which would take longer than the timeout
            with pytest.raises(OperationTimeoutError):
                await send(producer, timeout=0.3)

    await asyncio.gather(send_in_vain("stored"), send_in_vain("lost"))

    assert server.counters.transfers >= 2
    assert server.hub("stored").events()
    assert not server.hub("lost").events()


async def test_kill_cuts_the_connection_at_its_moment(server: EventHubsServer) -> None:
    """The client sends again unless it was told; an event stored but not settled comes twice."""

    async def send_twice(moment: KillMoment) -> list[bytes]:
        hub = server.add_hub(moment, partitions=1)
        server.faults.kill(moment, hub=moment)
        async with make_producer(server, moment) as producer:
            await send(producer, b"first")
            await send(producer, b"next")
        return [event.body for event in hub.events()]

    async with asyncio.TaskGroup() as group:
        moments: tuple[KillMoment, ...] = ("before_store", "before_settle", "after_settle")
        tasks = [group.create_task(send_twice(moment)) for moment in moments]

    once, twice = [b"first", b"next"], [b"first", b"first", b"next"]
    assert [task.result() for task in tasks] == [once, twice, once]


async def test_kill_connections_clients_come_back(
    server: EventHubsServer, producer: EventHubProducerClient, read: Read
) -> None:
    """Reader and producer survive the loss of every connection, and nothing comes twice."""
    reader = read()
    await send(producer, b"before", partition_id="0")
    await reader.wait_for_events(1)

    killed = server.kill_connections()
    await send(producer, b"after", partition_id="0")
    await reader.wait_for_events(2)

    assert killed == 2
    assert reader.bodies == [b"before", b"after"]


async def test_delay_settles_late(
    server: EventHubsServer, producer: EventHubProducerClient
) -> None:
    """A delayed transfer is in the hub at once, but its sender waits."""
    await send(producer, b"warm")
    server.faults.delay(0.5, times=1)

    sending = asyncio.create_task(send(producer, b"late"))
    stored = await server.hub(HUB).wait_for(2)
    is_done_early = sending.done()
    await sending

    assert len(stored) == 2
    assert not is_done_early
    assert server.counters.transfers == 2


async def test_restart_keeps_port_and_contents(
    server: EventHubsServer, producer: EventHubProducerClient, read: Read
) -> None:
    """After an outage the same clients go on where they were, on the same port."""
    reader = read()
    await send(producer, b"before", partition_id="0")
    await reader.wait_for_events(1)

    port = server.port
    await server.stop()
    with pytest.raises(EventHubError):
        await send(producer, b"lost", partition_id="0")
    await server.start()
    await send(producer, b"after", partition_id="0")
    await reader.wait_for_events(2)

    assert port == server.port
    assert reader.bodies == [b"before", b"after"]
    assert [event.body for event in server.hub(HUB).events("0")] == [b"before", b"after"]


class FixedCredential:
    """An Entra ID credential that always has the same token."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        return AccessToken(self._token, int(datetime.now(UTC).timestamp()) + 3600)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


async def test_bearer_token_is_taken_if_known() -> None:
    """A credential works in place of a key when the server was told its token."""
    async with EventHubsServer(bearer_tokens=["good"]) as server:
        server.add_hub(HUB)

        async def send_with(token: str) -> None:
            async with EventHubProducerClient(
                server.endpoint.removeprefix("sb://"),
                HUB,
                FixedCredential(token),
                use_tls=False,
                **SOON,
            ) as producer:
                await send(producer, token.encode())

        good, bad = await asyncio.gather(
            send_with("good"), send_with("bad"), return_exceptions=True
        )

    assert good is None
    assert isinstance(bad, AuthenticationError)
    assert [event.body for event in server.hub(HUB).events()] == [b"good"]


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # the client's
async def test_websocket_front_carries_the_same_protocol() -> None:
    """A client that may only use WebSockets publishes all the same."""
    async with EventHubsServer(websocket=True) as server:
        server.add_hub(HUB)
        async with make_producer(
            server,
            custom_endpoint_address=server.websocket_endpoint,
            transport_type=TransportType.AmqpOverWebsocket,
        ) as producer:
            await send(producer)

    assert [event.body for event in server.hub(HUB).events()] == [b"hello"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        [
            *command.split(),
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


async def test_tls_client_publishes(certificate: tuple[Path, Path]) -> None:
    """With a server context the client connects over TLS and checks the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with EventHubsServer(ssl_context=context) as server:
        server.add_hub(HUB)
        async with make_producer(
            server,
            custom_endpoint_address=server.endpoint,
            transport_type=TransportType.Amqp,
            connection_verify=str(certificate[0]),
        ) as producer:
            await send(producer)

    assert [event.body for event in server.hub(HUB).events()] == [b"hello"]
