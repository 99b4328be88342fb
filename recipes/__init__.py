"""From a corpus to a character error rate, with uio_pipes in the middle. Read them, run them, copy them."""
