"""What a user is told: errors, progress, versions."""
