"""All claims, of every module that has some."""

from typing import Final

import claims_metadata
import claims_queues
import claims_records
import claims_routes
import claims_wire
import registry

MODULES: Final = (claims_metadata, claims_queues, claims_records, claims_routes, claims_wire)  # each registers its claims
CLAIMS: Final = registry.CLAIMS
