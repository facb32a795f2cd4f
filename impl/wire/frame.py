"""Reports and transfer frames: HA-W-6 "Every integer on the wire MUST be big-endian, two's complement and signed".

    report            8 bytes = i64 max physical offset              HA-W-1 "A report MUST be 8 bytes"
    transfer header  12 bytes = i64 physical offset, i32 body size   HA-W-2 "A transfer frame MUST be a 12-byte header"

>>> HEADER.pack(0x1122, 5).hex()
'000000000000112200000005'
"""

from struct import Struct
from typing import Final

REPORT: Final = Struct(">q")
HEADER: Final = Struct(">qi")
