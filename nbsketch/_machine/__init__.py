"""What depends on the machine: linear algebra, memory."""
