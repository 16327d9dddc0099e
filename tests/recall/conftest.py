import pytest
from past_runs import OTHERS, kept

from kp_middleware import KnowledgePulse
from kp_middleware.testing import StandInEmbedder


@pytest.fixture
def kp(db):
    """With other runs: without them no word would tell one task from another."""
    with KnowledgePulse(db=db, embedder=StandInEmbedder(), sync=True) as kp:
        for objective in OTHERS:
            kept(kp, objective)
        yield kp
