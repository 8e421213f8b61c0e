"""Which version of MQTT the next connection speaks, where the configuration leaves it open.

A broker that knows 3.1.1 only either says so or hangs up without a word. So does a load balancer
whose broker is just restarting; therefore one hang-up is no answer, and none is once MQTT 5 worked.
"""

from bridge.config import Mqtt
from bridge.errors import BridgeError
from bridge.mqtt_client import ProtocolRefused, Version

# In a row, before the first connection: seconds, and more than a broker's restart brings usually.
_HANG_UPS = 2


class ProtocolChoice:
    def __init__(self, config: Mqtt) -> None:
        self.version: Version = "3.1.1" if config.protocol == "3.1.1" else "5"
        self._is_open = config.protocol == "auto" and config.auth != "entra-jwt"
        self._has_spoken_5 = False
        self._hang_ups = 0
        self._only_311 = False  # the broker said so

    def worked(self) -> None:
        self._hang_ups = 0
        self._has_spoken_5 = self._has_spoken_5 or self.version == "5"

    def failed(self, error: BridgeError) -> None:
        if not self._is_open:
            return
        if isinstance(error, ProtocolRefused) and self.version == "5":
            self._hang_ups += 1
            self._only_311 = self._only_311 or error.explicit
        else:
            self._hang_ups = 0
        guessed_311 = self._hang_ups >= _HANG_UPS and not self._has_spoken_5
        self.version = "3.1.1" if self._only_311 or guessed_311 else "5"
