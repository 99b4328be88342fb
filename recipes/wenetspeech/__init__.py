"""WenetSpeech: the real corpus, or a small one of the same layout, spoken by espeak-ng (``mini``)."""
