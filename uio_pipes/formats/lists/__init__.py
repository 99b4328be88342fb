"""Data lists and the files beside them: manifests, overlays, quarantine."""
