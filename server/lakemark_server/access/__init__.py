"""Who a client is: users and their passwords."""
