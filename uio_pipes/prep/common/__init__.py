"""What all preparation shares: pools, progress bars, suggestions."""
