"""The commit log: files, writing, scanning, recovery, flushing, reading and verifying."""
