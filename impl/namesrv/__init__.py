"""The name server (chapter 7)."""
