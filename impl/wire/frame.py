"""Reports and transfer frames: HA-W-1, HA-W-2.

    report            8 bytes = i64 max physical offset
    transfer header  12 bytes = i64 physical offset, i32 body size

>>> HEADER.pack(0x1122, 5).hex()
'000000000000112200000005'
"""

from struct import Struct
from typing import Final

REPORT: Final = Struct(">q")
HEADER: Final = Struct(">qi")
