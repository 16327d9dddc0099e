"""What waits in the outbox, sent while a person waits for it."""

import time
from collections.abc import Callable

from pydantic import SecretStr

from kp_middleware.export import Registry
from kp_middleware.pipeline._forwarding_worker import ForwardingWorker
from kp_middleware.settings import Settings


def drain(
    settings: Settings, api_key: SecretStr, *, timeout_s: float, look: Callable[[], None]
) -> str | None:
    """Send until all is sent, nothing more can be in time, or the time is over.

    Programs that send meanwhile share the pace, and no trace is sent by two. The request in hand
    when the time is over has its own time to end.

    Args:
        settings: Of whoever waits.
        api_key: Of the registry.
        timeout_s: How long to go on.
        look: Called about once a second.

    Returns:
        Why the file could not be used, and what to do about it; None if it could.

    Raises:
        ValueError: If the key must not go to this URL, or cannot be put into a header.
    """
    deadline = time.monotonic() + timeout_s
    registry = Registry(settings.registry_url, api_key, agent_id=settings.agent_id)
    worker = ForwardingWorker(settings, registry)
    worker.start()
    try:
        worker.wait_until_sent(deadline, look)
        return worker.trouble
    finally:
        worker.stop(registry.timeout_s)
