"""How data lies in files: lists, tars, TouchDatasets, Kaldi tables, Shars. No node and no stage is in here."""
