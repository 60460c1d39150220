"""What holds for a request without being handed on: the time, its deadline, who asks."""
