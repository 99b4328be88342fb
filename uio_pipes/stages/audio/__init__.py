"""Stages that work on waveforms."""
