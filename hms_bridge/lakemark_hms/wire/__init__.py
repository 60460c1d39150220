"""The wire of the facade: messages (``codec``), spliced structs (``splice``), the socket server (``server``)."""
