"""The demo's folder: one configuration file a VM, one for the operator, ledgers and logs."""

import random
import socket
from pathlib import Path

from bridge.demo.story import AUTO_RULE

# Below Linux's range for outgoing connections, which agents open all the time.
_PORTS = range(20_000, 32_000)
_PORT_TRIES_MAX = 1000

_OPERATOR = """\
# For `sebridge approve` and `sebridge watch`.
[mqtt]
host = "{host}"
port = {port}
protocol = "3.1.1"
"""

_AGENT = """\
# The agent on {vm}. `sebridge status` and `sebridge audit` take this file.
[imds]
endpoint = "{endpoint}"

[store]
path = "{folder}/{vm}.db"

[mqtt]
host = "{host}"
port = {port}
protocol = "3.1.1"
reconnect_s_max = 2.0

[http]
listen = "127.0.0.1:{http_port}"

[log]
format = "text"

[[approvals.rules]]
name = "{rule}"
event_types = ["Freeze"]
event_sources = ["Platform"]
action = "auto"
"""


def write_operator(folder: Path, host: str, port: int) -> Path:
    path = folder / "operator.toml"
    path.write_text(_OPERATOR.format(host=host, port=port), encoding="utf-8")
    return path


def write_agent(folder: Path, vm: str, endpoint: str, host: str, port: int) -> Path:
    path = folder / f"{vm}.toml"
    text = _AGENT.format(
        vm=vm,
        endpoint=endpoint,
        folder=folder,
        host=host,
        port=port,
        http_port=free_port(),
        rule=AUTO_RULE,
    )
    path.write_text(text, encoding="utf-8")
    return path


def free_port() -> int:
    for _ in range(_PORT_TRIES_MAX):
        port = random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {_PORTS.start} and {_PORTS.stop}")
