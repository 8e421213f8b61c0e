"""Signed commands with real processes: a trusted key approves, everybody else is refused."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import main
from bridge.core.cloudevents import rfc3339
from bridge.signatures import key_id, load_private_key, sign
from tests.builders import EVENT_ID, VM_NAME, azure_entry, command_bytes

ENTRY = azure_entry()


def command(key: str, event_id: str = EVENT_ID) -> bytes:
    now = datetime.now(UTC)
    return command_bytes(
        {"eventId": event_id, "vm": VM_NAME},
        id=f"id-{key}",
        time=rfc3339(now),
        expirytime=rfc3339(now + timedelta(minutes=5)),
        idempotencykey=key,
    )


def reasons(observer: Any) -> list[str]:
    return [outcome["data"].get("reason", "") for outcome in observer.of("outcomes")]


class Keys:
    """A pair made by `sebridge keys new`, and a list of revoked keys."""

    def __init__(self, folder: Path) -> None:
        assert main(["keys", "new", str(folder)]) == 0
        (self.private,), (self.public,) = folder.glob("*.key.pem"), folder.glob("*.pub.pem")
        self.revoked = folder / "revoked"
        self.revoked.write_text("")

    def sign(self, payload: bytes) -> bytes:
        return sign(payload, load_private_key(str(self.private)))

    def revoke(self) -> None:
        self.revoked.write_text(key_id(load_private_key(str(self.private)).public_key()))


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys")


@pytest.fixture
def signed_agent(agent: Any, tmp_path: Path, keys: Keys) -> Any:
    """The agent of the other stories, with one trusted key."""
    config = tmp_path / "agent.toml"
    config.write_text(
        f'{config.read_text()}\n[commands]\ntrusted_keys = ["{keys.public}"]\n'
        f'revoked_keys_file = "{keys.revoked}"\n'
    )
    return agent


async def test_only_a_trusted_key_approves(
    signed_agent: Any, imds: Any, observer: Any, keys: Keys, until: Callable[..., Any]
) -> None:
    """Unsigned is refused, the CLI with the key approves, a revoked key approves no more."""
    other = "c7a1b2c3-0000-4000-8000-000000000001"
    imds.show(ENTRY, {**ENTRY, "EventId": other})
    signed_agent.start()
    await until(lambda: len(observer.of("events")) == 2)
    observer.send(command("chg-1"))
    await until(lambda: reasons(observer) == ["bad-signature"])

    async def approve(*arguments: str) -> int:
        ended = await asyncio.to_thread(signed_agent.cli, "approve", EVENT_ID, *arguments)
        return int(ended.returncode)

    unsigned = await approve("--timeout", "10")
    approved = await approve("--key", "chg-1", "--key-file", str(keys.private))
    status = await asyncio.to_thread(signed_agent.cli, "status")
    keys.revoke()
    observer.send(keys.sign(command("chg-2", other)))
    await until(lambda: len(reasons(observer)) == 4)

    assert (unsigned, approved) == (3, 0)
    assert imds.posts == [EVENT_ID]
    assert reasons(observer) == ["bad-signature", "bad-signature", "", "bad-signature"]
    assert observer.of("outcomes")[3]["data"]["detail"].endswith("is revoked")
    assert "commands   signed" in status.stdout
    assert {said["data"]["commands"] for said in observer.of("status")} == {"signed"}


async def test_agent_does_not_start_with_a_key_it_cannot_read(
    signed_agent: Any, keys: Keys
) -> None:
    """A missing key file ends the start with exit code 2, and not in unsigned mode."""
    keys.public.unlink()

    ended = await asyncio.to_thread(signed_agent.cli, "run")

    assert ended.returncode == 2
    assert keys.public.name in ended.stderr
