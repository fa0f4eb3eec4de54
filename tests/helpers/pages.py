"""A page of a report, read without a browser."""

import re
from html import unescape
from html.parser import HTMLParser


class Page(HTMLParser):
    """Elements with their attributes, in order, and the text between them; `style` and `script` apart."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements, self.texts, self.open_tags = [], [], []
        self.styles, self.scripts = [], []
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "img", "br"):
            self.open_tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag, tag

    def handle_data(self, data):
        apart = {"style": self.styles, "script": self.scripts}
        apart.get(self.open_tags[-1] if self.open_tags else "", self.texts).append(data)

    def every(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.texts))

    @property
    def models(self):
        """Their names, as the table of scores has them."""
        rows = self.source.partition('<table class="scores">')[2].partition("</table>")[0]
        return [unescape(name) for name in re.findall(r'<th scope="row"><span[^>]*></span>([^<]*)</th>', rows)]

    @property
    def sections(self):
        return [attributes["id"] for attributes in self.every("section")]

    @property
    def addresses(self):
        """Whatever an attribute could make a browser fetch or follow."""
        names = ("src", "href", "srcset", "action", "data", "poster", "background", "xlink:href")
        return [a[name] for _, a in self.elements for name in names if name in a]

    @property
    def css(self):
        return " ".join([*self.styles, *(a["style"] for _, a in self.elements if "style" in a)])
