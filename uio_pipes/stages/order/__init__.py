"""Stages that order, repeat and mix what flows."""
