"""Checks that SVG files are what readers of papers, and of other programs, need:
well-formed XML that refers to nothing outside, labels that stand in contrast to
their boxes, and kinds of action that differ for every kind of colour vision.

  picture.py SVG...
"""

import itertools
import re
import sys
import xml.etree.ElementTree

SVG = "{http://www.w3.org/2000/svg}"
KINDS = ["forward", "backward", "input gradient", "weight gradient", "recompute"]
# How dichromats see linear RGB: G. Machado et al., A Physiologically-based Model
# for Simulation of Color Vision Deficiency, IEEE TVCG 15(6), 2009, severity 1.
VISIONS = {
    "trichromat": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanope": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                  [-0.003882, -0.048116, 1.051998]],
    "deuteranope": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                    [-0.011820, 0.042940, 0.968881]],
    "tritanope": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                  [0.004733, 0.691367, 0.303900]],
}


def linear(colour):
    parts = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def luminance(colour):
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a, b):
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def lab(colour, vision):
    """CIE L*a*b* of a colour, as that vision sees it."""
    rgb = [min(1, max(0, sum(m * c for m, c in zip(row, linear(colour))))) for row in vision]
    xyz = [sum(m * c for m, c in zip(row, rgb)) for row in
           ([0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8729])]
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def check(path):
    root = xml.etree.ElementTree.parse(path).getroot()
    assert root.tag == SVG + "svg", root.tag
    known = {SVG + tag for tag in "svg title defs pattern rect path g text".split()}
    for element in root.iter():
        assert element.tag in known, element.tag
        for name, value in element.items():
            assert "href" not in name and not name.startswith("on"), name
            assert "url(" not in value or value.startswith("url(#"), value

    # Colours of fills, of a pattern that of its ground.
    ids = [pattern.get("id") for pattern in root.iter(SVG + "pattern")]
    assert len(ids) == len(set(ids)), ids
    ground = {f"url(#{pattern.get('id')})": pattern.find(SVG + "rect").get("fill")
              for pattern in root.iter(SVG + "pattern")}

    def colour(rect):
        fill = rect.get("fill")
        colour = ground[fill] if fill.startswith("url") else fill
        return "#" + 2 * colour[1:] if len(colour) == 4 else colour

    # Labels on boxes: by place, in the group of each rank.
    labels = 0
    for rank in root.iter(SVG + "g"):
        if rank.get("transform") is None:
            continue
        boxes = [[float(r.get(k)) for k in ("x", "y", "width", "height")] + [colour(r)]
                 for r in rank.iter(SVG + "rect")]
        for group in rank.findall(SVG + "g"):
            for text in group.findall(SVG + "text"):
                at, base = float(text.get("x")), float(text.get("y"))
                (box,) = [b for b in boxes if b[0] < at < b[0] + b[2] and b[1] < base < b[1] + b[3]]
                ink = group.get("fill", "#000")
                assert contrast(box[4], "#" + 2 * ink[1:]) >= 4.5, (box[4], ink)
                labels += 1

    # The legend: a box, and what it means.
    kinds, last = {}, None
    for element in root.iter():
        if element.tag == SVG + "rect" and element.get("fill") != "#fff":
            last = element
        if element.tag == SVG + "text" and element.text in KINDS:
            kinds[element.text] = colour(last)
    for (a, colour_a), (b, colour_b) in itertools.combinations(kinds.items(), 2):
        for name, vision in VISIONS.items():
            one, other = lab(colour_a, vision), lab(colour_b, vision)
            difference = sum((x - y) ** 2 for x, y in zip(one, other)) ** 0.5
            assert difference >= 20, (a, b, name, difference)
    return len(kinds), labels


for path in sys.argv[1:]:
    kinds, labels = check(path)
    print(f"{kinds} kinds, {labels} labels")
