"""Tables that describe utterances, in whatever form they are written: rows by number, none of them kept in memory."""
