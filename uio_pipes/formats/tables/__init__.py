"""Tables of utterances in any format, with rows by number that are not kept in memory."""
