"""Stages that order, repeat and mix utterances."""
