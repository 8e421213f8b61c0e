"""Drain with paho alone: the same messages from memory, the same window, no ledger."""

import json
import sys
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

port, window, messages = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="bench-raw", protocol=mqtt.MQTTv5)
client.max_inflight_messages_set(window)
client.max_queued_messages_set(0)
client.connect("127.0.0.1", port)
client.loop_start()
lines = [json.loads(line) for line in messages.read_text().splitlines()]
waiting = [client.publish(topic, payload, qos=1, retain=retain) for topic, payload, retain in lines]
for message in waiting:
    message.wait_for_publish()
client.disconnect()
client.loop_stop()
