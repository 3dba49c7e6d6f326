"""What every certified search shares."""
