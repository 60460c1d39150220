"""What a request carries without passing it on as an argument: the time, its deadline, its caller."""
