"""What agents publish over MQTT, for a consumer."""

from bridge.feeds.mqtt.feed import MqttFeed

__all__ = ["MqttFeed"]
