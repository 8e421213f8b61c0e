"""`sebridge simulate --fleet N`: N whole agents on one machine, and a day that happens to them all.

command.py   arguments, and the table at the end
drill.py     the acts: start, steady state, mass event, broker restart
machines.py  the other side of every agent: one IMDS a VM, lean enough for thousands of polls
operator.py  the other side of the broker: sees every message, approves every event
worker.py    a process with many agents, each with its own ledger and MQTT connection
"""
