"""One self-contained HTML page about models and the images that tested them."""

from hedgerow.report.page import Curve, Table, write_report

__all__ = ["Curve", "Table", "write_report"]
