"""Sinks: events that the service itself delivers, to webhooks and Kafka (docs/sinks.md). Each is a consumer."""
