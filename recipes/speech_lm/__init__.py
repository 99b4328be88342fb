"""A small speech language model, trained to transcribe on rows that are packed without padding."""
