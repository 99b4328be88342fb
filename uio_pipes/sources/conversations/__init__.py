"""Conversations: lines of JSON whose turns are of text and audio."""
