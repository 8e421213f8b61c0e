"""The Azure VM extension: what the guest agent (WALinuxAgent) asks for, in terms of the service.

Runs as root, from inside the wheel, with the standard library alone. A secret goes from openssl's
stdout into a file of mode 0600 and nowhere else: not into arguments, environment, logs or status.
"""
