"""Instants before they are completed: their states, their heartbeats, and the entries staged under them."""
