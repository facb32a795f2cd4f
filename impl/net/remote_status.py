"""Read the status of a master or slave on another machine, as JSON, from /status on the port of its --metrics."""

import http.client
import json
from typing import Any, Final

from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.figures import FORMAT
from rocketmq_ha.impl.net.status_socket import NotRunning

STATUS_PATH: Final = "/status"
_LARGEST: Final = 16 * 1024 * 1024  # bytes read of an answer


def ask_remote(address: tuple[str, int], timeout_s: float = 10.0) -> dict[str, Any]:
    """The last status that the process has published, a few seconds old at most. Raises: NotRunning."""
    where = format_address(*address)
    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    try:
        connection.request("GET", STATUS_PATH)
        answer = connection.getresponse()
        body = answer.read(_LARGEST)
        code = answer.status
    except TimeoutError:
        raise NotRunning(f"{where}: no answer for {timeout_s:g} s, expected the address of --metrics") from None
    except OSError as error:
        raise NotRunning(
            f"{where}: {error.strerror or error}: expected the address of --metrics of a master or slave"
        ) from None
    except http.client.HTTPException as error:
        raise NotRunning(f"{where}: found no HTTP ({type(error).__name__}), expected the address of --metrics") from None
    finally:
        connection.close()
    try:
        found = json.loads(body) if code == http.client.OK else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise NotRunning(f"{where}: found no status of format {FORMAT} under {STATUS_PATH} (HTTP {code})")
    return found
