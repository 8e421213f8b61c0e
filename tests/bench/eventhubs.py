"""Resident memory over Event Hubs with a managed identity, on a live connection.

This brings in Azure's client library and TLS with the system's authorities, and part of it is loaded
or allocated only once a token was fetched and links are open: without a connection the figure would
flatter. The namespace is the tests' AMQP server, in this process; the agent is a process of its own.
"""

import asyncio
import contextlib
import ssl
from datetime import timedelta
from pathlib import Path

from tests.bench.contestants import Workshop, resident_mb, running
from tests.bench.fake_imds import TOKEN, FakeImds, scheduled_event
from tests.bench.measure import until
from tests.support.certificates import Authority
from tests.support.eventhubs_server import EventHubsServer
from tests.support.mosquitto import free_port

EVENTS_HUB, COMMANDS_HUB = "scheduled-events", "scheduled-events-commands"
PARTITIONS = 2  # as many as docs/scaling.md has for the commands hub
CHANGES = 5
SETTLE_S = 10.0  # twice the silence after which a reader shows life
# Any of these would send the agent elsewhere for its token.
OTHER_IDENTITIES = ("IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_FEDERATED_TOKEN_FILE")


async def resident(workshop: Workshop) -> float:
    """Megabytes, after some events have arrived and while both hubs are connected."""
    folder = workshop.folder / "eventhubs"
    folder.mkdir()
    authority = Authority(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("namespace", ends=timedelta(days=1)))
    imds = FakeImds()
    async with EventHubsServer(ssl_context=context, bearer_tokens=[TOKEN]) as server:
        for hub in (EVENTS_HUB, COMMANDS_HUB):
            server.add_hub(hub, PARTITIONS)
        command = _agent(workshop, folder, authority, await imds.start(), server.port)
        process = contextlib.ExitStack()
        agent = process.enter_context(running(command, workshop.folder))
        try:
            await _publish(imds, server)
            await until(lambda: server.receivers(COMMANDS_HUB) == PARTITIONS, "readers of commands")
            connections = server.counters.connections
            await asyncio.sleep(SETTLE_S)
            found_mb = resident_mb(agent.pid)
            assert server.counters.connections == connections, "the agent had to connect again"
            assert server.receivers(COMMANDS_HUB) == PARTITIONS, "commands are not read any more"
            assert {("jwt", TOKEN)} == set(server.counters.tokens), "not the identity's token"
        finally:
            # In a thread: the agent says goodbye to the server, which lives in this loop.
            await asyncio.to_thread(process.close)
    imds.stop()
    return found_mb


async def _publish(imds: FakeImds, server: EventHubsServer) -> None:
    """One change after the other, each seen at the hub before the next."""
    hub = server.hub(EVENTS_HUB)
    for number in range(CHANGES):
        mark = f"change-{number}"
        imds.set([scheduled_event(1, mark)])
        await until(
            lambda mark=mark: any(mark.encode() in event.body for event in hub.events()),  # type: ignore[misc]
            f"{mark} at the hub",
        )


def _agent(
    workshop: Workshop, folder: Path, authority: Authority, imds: str, port: int
) -> list[str]:
    config, authorities = folder / "config.toml", folder / "authorities.pem"
    authorities.write_text(_systems_authorities() + authority.ca_file.read_text())
    config.write_text(
        f'[imds]\nendpoint = "{imds}"\npoll_interval_s = 1.0\n'
        f'[store]\npath = "{folder}/state.db"\n'
        f'[events]\nsinks = ["eventhubs"]\n'
        f'[commands]\nsource = "eventhubs"\n'
        f'[eventhubs]\nnamespace = "bench.servicebus.windows.net"\n'
        f'endpoint = "127.0.0.1:{port}"\nca_file = "{authorities}"\n'
        f'[http]\nlisten = "127.0.0.1:{free_port()}"\n'
    )
    environment = ["env", *(f"--unset={name}" for name in OTHER_IDENTITIES)]
    environment.append(f"AZURE_POD_IDENTITY_AUTHORITY_HOST={imds}")
    return [*environment, str(workshop.python), "-m", "bridge", "run", "--config", str(config)]


def _systems_authorities() -> str:
    """On a VM the agent has all of them in memory; the test's own alone would be too light."""
    cafile = ssl.get_default_verify_paths().cafile
    return Path(cafile).read_text(encoding="utf-8") if cafile else ""
