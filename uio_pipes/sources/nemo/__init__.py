"""NeMo's manifests, and the tars that they may point into."""
