"""Stages that work on text."""
