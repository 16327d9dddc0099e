"""What a program can see of a picture."""

from xml.etree import ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"


def root(picture):
    """The drawing, which must be well-formed."""
    return ET.fromstring(picture.svg)


def every(picture, tag):
    return root(picture).findall(f".//{SVG}{tag}")


def titles(picture):
    return [title.text for title in every(picture, "title")]


def words(picture):
    return [text.text for text in every(picture, "text")]


def hrefs(picture):
    return [link.get("href") for link in every(picture, "a")]


def bars(picture, colour):
    """The (x, y, width, height) of all bars of a colour."""
    return [
        tuple(float(bar.get(name)) for name in ("x", "y", "width", "height"))
        for bar in every(picture, "rect")
        if bar.get("class") == f"kp-{colour}"
    ]


def threshold_x(picture):
    lines = every(picture, "line")
    return next(float(line.get("x1")) for line in lines if line.get("class") == "kp-threshold")
