"""Checks that HTML files are well-formed XML, run no scripts and refer to nothing
outside themselves.

  page.py HTML...
"""

import sys
import xml.etree.ElementTree


def check(path):
    root = xml.etree.ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/1999/xhtml}html", root.tag
    for element in root.iter():
        tag = element.tag.split("}")[1]
        assert tag not in ("script", "link", "img", "iframe", "object"), tag
        for name, value in element.items():
            assert "href" not in name and name != "src", name
            assert not name.startswith("on"), name
            assert "url(" not in value or value.startswith("url(#"), value
    identities = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(identities) == len(set(identities)), identities


for file in sys.argv[1:]:
    check(file)
