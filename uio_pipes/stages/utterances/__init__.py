"""Stages that work on whole utterances: they keep, change, cut and join them."""
