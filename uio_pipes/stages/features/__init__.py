"""Stages that compute features, or change them."""
