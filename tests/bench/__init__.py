"""`make bench`: what the agent costs, beside what people would use instead. Never a timed test."""
