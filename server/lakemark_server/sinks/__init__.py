"""Sinks: events that the service itself delivers: webhooks, Kafka and mail (docs/sinks.md). Each is a consumer."""
