"""One self-contained HTML page that compares models on labelled images."""

from hedgerow.report.page import write_report
from hedgerow.report.sections import Curve, ReportTable

Table = ReportTable  # the public name

__all__ = ["Curve", "Table", "write_report"]
