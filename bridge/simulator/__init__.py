"""Azure on your desk: a scale set, its scheduled events and one IMDS a VM, by the documentation.

Nothing in here imports the rest of `bridge`: a misreading of Azure's documentation must not be
made twice, once in the agent and once in its judge.
"""
