"""Where two strings of bytes begin to differ."""


def first_difference(a: bytes | bytearray | memoryview, b: bytes | bytearray | memoryview) -> int | None:
    """The index of the first byte in which two strings differ; None where the shorter one begins the longer one.

    It halves the range and compares slices, so that the interpreter does not look at single bytes.

    >>> first_difference(b"abcd", b"abxd"), first_difference(b"ab", b"abxd")
    (2, None)
    """
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low
