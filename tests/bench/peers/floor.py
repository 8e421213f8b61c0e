"""The floor: bare sockets, one GET written and read, one PUBLISH written, nothing else."""

import socket
import sys
import time

from tests.bench import raw_mqtt

endpoint, port, interval_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
host, _, imds_port = endpoint.removeprefix("http://").partition(":")
imds = socket.create_connection((host, int(imds_port)))
broker = socket.create_connection(("127.0.0.1", port))
broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
broker.sendall(raw_mqtt.connect("bench-floor"))
broker.recv(64)
request = (
    "GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
    f"Host: {host}\r\nMetadata: true\r\n\r\n"
).encode()
last = b""
while True:
    began = time.monotonic()
    imds.sendall(request)
    body = imds.recv(65_536).partition(b"\r\n\r\n")[2]
    if body != last:
        last = body
        broker.sendall(raw_mqtt.publish("bench/events", body, 1))
        broker.recv(64)
    time.sleep(max(0.0, interval_s - (time.monotonic() - began)))
