"""Azure Event Hubs over AMQP 1.0: events, outcomes and status to one hub, commands from another.

sink.py      the `Sink`: batches out, one producer, in order
source.py    the `CommandSource`: every partition of the commands hub, from the offset in the ledger
check.py     what `sebridge doctor` asks
"""
