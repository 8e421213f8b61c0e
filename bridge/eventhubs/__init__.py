"""What the Event Hubs transport and the Event Hubs feed share.

client.py    azure-eventhub's clients, set up our way; identities; the one TLS context
receiver.py  reading a hub: one connection after the other, with our own backoff
messages.py  CloudEvents in AMQP messages, both content modes
problems.py  what the service said, as what the operator must do

azure-eventhub and azure-identity are imported only when Event Hubs is configured.
"""
