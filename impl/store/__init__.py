"""Files: the commit log over mapped files."""
