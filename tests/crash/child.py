"""The real agent with its real transports in a fresh process, hit at one step.

Usage: python -m tests.crash.child CONFIG ACTION AT (0: never).
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from bridge import app, configfile, log
from bridge.transports import Incoming, Outgoing
from bridge.transports.mqtt import MqttTransport
from tests.crash.steps import Steps, install


def step_around_mqtt(steps: Steps) -> None:
    """Around a publish and its PUBACK, and around the PUBACK of a command."""
    publish, commands = MqttTransport.publish, MqttTransport.commands

    async def stepping(self: MqttTransport, batch: Sequence[Outgoing]) -> None:
        steps.step()
        await publish(self, batch)
        steps.step()

    async def stepping_commands(self: MqttTransport) -> Any:
        async for incoming in commands(self):
            steps.step()
            yield Incoming(
                wire=incoming.wire,
                ack=steps.around(incoming.ack),
                reply_topic=incoming.reply_topic,
                correlation=incoming.correlation,
                position=incoming.position,
            )

    MqttTransport.publish = stepping  # type: ignore[method-assign]
    MqttTransport.commands = stepping_commands  # type: ignore[method-assign]


def main() -> None:
    config = configfile.load(sys.argv[1])
    steps = Steps(sys.argv[2], int(sys.argv[3]))
    log.configure(config.log)
    install(steps)
    step_around_mqtt(steps)
    asyncio.run(app.run(config))


if __name__ == "__main__":
    main()
