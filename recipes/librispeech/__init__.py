"""LibriSpeech: the real corpus, or a small one with the same layout, spoken by espeak-ng (``mini``)."""
