"""File formats: lists, tars, TouchDatasets, Kaldi tables, Shars. There is no node and no stage in here."""
