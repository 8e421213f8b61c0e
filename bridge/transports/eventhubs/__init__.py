"""Azure Event Hubs over AMQP 1.0: events, outcomes and status to one hub, commands from another.

sink.py      the `Sink`: batches out, one producer, in order
source.py    the `CommandSource`: every partition of the commands hub, from the offset in the ledger
receiver.py  reading a hub: one connection after the other, with our own backoff
client.py    azure-eventhub's clients, set up our way; identities; the one TLS context
problems.py  what the service said, as what the operator must do
messages.py  CloudEvents in AMQP messages, both content modes
check.py     what `sebridge doctor` asks

azure-eventhub and azure-identity are imported from here only, and only when they are used.
"""
