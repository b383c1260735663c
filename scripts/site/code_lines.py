"""A hook of mkdocs: marks lines and options in code, which docs/site.css keeps together."""

import re

_BLOCK = re.compile(r"(<pre>(?:<span></span>)?<code[^>]*>)(.*?)(</code></pre>)", re.DOTALL)
_CODE = re.compile(r"<code[^>]*>.*?</code>", re.DOTALL)
#: Not in a tag.
_OPTION = re.compile(r"(?<![\w&-])--?[a-z][\w-]*(?![^<>]*>)")


def on_page_content(html: str, **_: object) -> str:
    """Return a page's HTML with its lines of code, and the options in them, marked."""
    html = _CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)
    return _BLOCK.sub(lambda block: block[1] + _lines(block[2]) + block[3], html)


def _lines(code: str) -> str:
    lines = code.rstrip("\n").split("\n")
    if any(line.count("<span") != line.count("</span") for line in lines):
        return code  # a string of several lines
    return "".join(f'<span class="line">{line}\n</span>' for line in lines)
