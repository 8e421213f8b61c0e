"""The fleet's web console: a downstream consumer of the broker, with one button."""
