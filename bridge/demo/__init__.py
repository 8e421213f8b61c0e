"""`sebridge demo`: scale sets, a broker and one agent a VM on one machine, and a story to watch."""
