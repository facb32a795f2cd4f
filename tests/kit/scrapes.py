"""What the HTTP port of `--metrics` answers."""

import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from kit.waiting import PATIENCE_S


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(address: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Map each metric's name to its samples: label values -> value."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(get(address, "/metrics")[1]):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found
