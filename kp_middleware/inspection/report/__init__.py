"""The report: what is worth a look, cleaned, as one page that needs nothing else.

Imports from `page`, `pictures` and `output`; a command imports it late.
"""

from kp_middleware.inspection.report._cleaning import cleaning_by, no_cleaning
from kp_middleware.inspection.report._page import report_html
from kp_middleware.inspection.report._reading import read_report

__all__ = ["cleaning_by", "no_cleaning", "read_report", "report_html"]
