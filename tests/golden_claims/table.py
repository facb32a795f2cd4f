"""Which clause was held against how many pieces of RocketMQ's bytes: `make golden-claims`; also to build/golden-claims.txt.

A piece counts once for each claim of the clause that applies to it.

Exit status 1 where a claim does not hold, or a clause, or a number in one that has a claim, is neither held nor listed.
"""

import sys
from pathlib import Path

import registry
import specimens
import words
from all_claims import CLAIMS

from rocketmq_ha.spec import citations, clauses

OUT = Path(__file__).parents[2] / "build" / "golden-claims.txt"


def main() -> int:
    goldens = specimens.read_all()
    held = registry.hold(goldens, CLAIMS)
    lists = registry.read_lists()
    releases = list(dict.fromkeys(golden.release for golden in goldens))
    lines = list(registry.table(held, CLAIMS, lists, releases))
    wrong = list(registry.errors(held, CLAIMS, lists, registry.clause_ids()))
    cited = citations.read_citations(OUT.parents[1])
    wrong += words.errors(CLAIMS, clauses.load(), cited, lists.words)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("\n".join([*lines, *wrong]) + "\n", encoding="utf-8")
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
