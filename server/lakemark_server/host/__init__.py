"""The process on its machine: cores, memory, logs, ports."""
