"""Pictures as inline SVG: values in, a drawing out, with its finding in words and as a table.

Imports from no other room.
"""

from kp_middleware.web.pictures._by_domain import DomainBins, by_domain
from kp_middleware.web.pictures._funnel import Stage, funnel
from kp_middleware.web.pictures._histogram import NO_SCORES, Bin, histogram
from kp_middleware.web.pictures._lettering import shortened
from kp_middleware.web.pictures._map import Spot, trace_map
from kp_middleware.web.pictures._markup import Markup, element, escaped, joined
from kp_middleware.web.pictures._novelty_band import Novelty, novelty_band
from kp_middleware.web.pictures._palette import (
    BELOW,
    CLEARED,
    COLOURS,
    LOSS,
    PLAIN,
    colours_of,
)
from kp_middleware.web.pictures._picture import Line, Picture
from kp_middleware.web.pictures._projection import Projection, nearest, project
from kp_middleware.web.pictures._removals import Removed, removals
from kp_middleware.web.pictures._tool_bars import AllTools, ToolCalls, tool_bars
from kp_middleware.web.pictures._waterfall import Term, waterfall
from kp_middleware.web.pictures._what_if import Curve, what_if
from kp_middleware.web.pictures._wording import count, share, took

__all__ = [
    "BELOW",
    "CLEARED",
    "COLOURS",
    "LOSS",
    "NO_SCORES",
    "PLAIN",
    "AllTools",
    "Bin",
    "Curve",
    "DomainBins",
    "Line",
    "Markup",
    "Novelty",
    "Picture",
    "Projection",
    "Removed",
    "Spot",
    "Stage",
    "Term",
    "ToolCalls",
    "by_domain",
    "colours_of",
    "count",
    "element",
    "escaped",
    "funnel",
    "histogram",
    "joined",
    "nearest",
    "novelty_band",
    "project",
    "removals",
    "share",
    "shortened",
    "took",
    "tool_bars",
    "trace_map",
    "waterfall",
    "what_if",
]
