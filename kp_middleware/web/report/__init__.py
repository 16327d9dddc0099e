"""The report: what is worth a look, cleaned, as one page that needs nothing else.

A command imports it late.
"""

from kp_middleware.web.report._cleaning import cleaning_by, no_cleaning
from kp_middleware.web.report._page import Told, report_html
from kp_middleware.web.report._reading import read_report

__all__ = ["Told", "cleaning_by", "no_cleaning", "read_report", "report_html"]
