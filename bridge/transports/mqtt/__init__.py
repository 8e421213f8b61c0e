"""MQTT, 5 and 3.1.1: events, outcomes and status out, commands in, over one connection.

transport.py   the `Sink` and `CommandSource`; keeps a connection, always comes back
connection.py  one connection from CONNECT to its end, and the thread model
protocol.py    which version the next connection speaks
client.py      paho's client, set up our way
messages.py    from outbox rows to topics and payloads
"""

from bridge.transports.mqtt.transport import MqttTransport

__all__ = ["MqttTransport"]
