"""The log of events, read: pages of it, marks in it, what is trimmed (docs/events.md). Mutations append to it."""
