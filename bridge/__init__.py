"""scheduled-events-bridge: Azure Scheduled Events on your own message bus, and approvals back."""
