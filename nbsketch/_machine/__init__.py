"""Code that depends on the computer: linear algebra and memory."""
