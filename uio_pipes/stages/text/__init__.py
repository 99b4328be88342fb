"""Stages that work on texts."""
