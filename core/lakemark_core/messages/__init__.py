"""The protobuf messages of ``lakemark.v1`` that client and service both build and read."""
