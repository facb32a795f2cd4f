"""A page of HTML, parsed strictly: its elements, ids and links, and the mistakes in it that a browser would mend in silence."""

import html
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "wbr"}
SVG_EMPTY = {"g", "path", "use", "rect", "circle", "line"}
# The elements of text alone, which no block may stand in.
PHRASING = {"p", "h1", "h2", "h3", "dt", "summary", "a", "b", "i", "code", "small", "strong", "span", "figcaption", "pre"}
BLOCKS = {"p", "h1", "h2", "h3", "ul", "li", "dl", "dt", "dd", "div", "section", "article", "table", "details", "figure", "nav"}
CHILDREN = {  # what may stand directly in an element, where that is not free
    "ul": {"li"},
    "dl": {"div"},
    "table": {"caption", "thead", "tbody"},
    "thead": {"tr"},
    "tbody": {"tr"},
    "tr": {"th", "td"},
}
ATTRIBUTE_OF = {"scope": {"th"}, "href": {"a", "use"}, "open": {"details"}}


@dataclass
class Element:
    """An element, its attributes, the elements directly in it, and all text in it."""

    tag: str
    attributes: dict[str, str]
    parent: "Element | None"
    children: list["Element"] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    def all(self, tag: str = "") -> "list[Element]":
        found = [self] if tag in ("", self.tag) else []
        return found + [one for child in self.children for one in child.all(tag)]

    def within(self, tag: str) -> bool:
        return self.parent is not None and (self.parent.tag == tag or self.parent.within(tag))

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.pieces)).strip()


class Page(HTMLParser):
    """Parse a page. Raises: AssertionError for a tag that is not closed, or stands where it may not."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("", {}, None)
        self.open = [self.root]
        self.doctypes: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [self.root], [one.tag for one in self.open]
        assert self.doctypes == ["doctype html"]
        self.elements = self.root.all()
        self.ids = [one.attributes["id"] for one in self.elements if "id" in one.attributes]

    def handle_decl(self, decl: str) -> None:
        self.doctypes.append(decl)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        parent = self.open[-1]
        element = Element(tag, {name: value or "" for name, value in attrs}, parent)
        self._check_place(element, parent)
        parent.children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def _check_place(self, element: Element, parent: Element) -> None:
        tag = element.tag
        if parent.tag in CHILDREN:
            assert tag in CHILDREN[parent.tag], f"<{tag}> in <{parent.tag}>"
        if tag in BLOCKS:
            outside = [one.tag for one in self.open if one.tag in PHRASING]
            assert not outside, f"<{tag}> in <{outside[-1]}>"
        if tag in ("a", "details", "summary"):
            assert not element.within("a"), f"<{tag}> in <a>"
        for name, tags in ATTRIBUTE_OF.items():
            assert name not in element.attributes or tag in tags, f"{name} of <{tag}>"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID | SVG_EMPTY, f"<{tag}/>"
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert tag not in VOID, f"</{tag}>"
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.pieces.append(data)

    def of(self, tag: str) -> list[Element]:
        return [one for one in self.elements if one.tag == tag]

    def by_id(self, name: str) -> Element:
        return next(one for one in self.elements if one.attributes.get("id") == name)


SEPARATE = r"<(td|th|dt|dd|caption|h2|h3|li|p|summary|figcaption|span)\b[^>]*>"


def plain(text: str) -> str:
    """The text of HTML without its pictures, with one space between the cells of a table."""
    text = re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", "", re.sub(SEPARATE, " ", text))
    return re.sub(r"\s+", " ", html.unescape(text)).strip()
