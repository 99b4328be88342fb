"""Stages that make features, or work on them."""
