"""What a user would write first: requests and paho, in memory, nothing durable, no approvals."""

import json
import sys
import time
import uuid
from datetime import UTC, datetime

import paho.mqtt.client as mqtt
import requests
from paho.mqtt.enums import CallbackAPIVersion

endpoint, port, interval_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
url = f"{endpoint}/metadata/scheduledevents?api-version=2020-07-01"

client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="bench-script")
client.connect("127.0.0.1", port)
client.loop_start()
session = requests.Session()
incarnation = None
while True:
    began = time.monotonic()
    document = session.get(url, headers={"Metadata": "true"}, timeout=5).json()
    if document["DocumentIncarnation"] != incarnation:
        incarnation = document["DocumentIncarnation"]
        for event in document["Events"]:
            message = {
                "specversion": "1.0",
                "id": str(uuid.uuid4()),
                "source": "/bench/script",
                "type": "scheduledevent",
                "time": datetime.now(UTC).isoformat(),
                "data": event,
            }
            client.publish("bench/events", json.dumps(message), qos=1)
    time.sleep(max(0.0, interval_s - (time.monotonic() - began)))
