"""One self-contained HTML page about models and the images that tested them."""

from hedgerow.report.page import write_report
from hedgerow.report.results import Curve, Table

__all__ = ["Curve", "Table", "write_report"]
