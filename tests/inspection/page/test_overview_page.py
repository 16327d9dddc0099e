import pytest
from page_reading import NoWays, card, hrefs, parsed, text_of, titles_of_cards


def test_the_overview_has_every_picture_of_the_file(work, overview_page):
    for number in range(4):
        work(f"fix test {number}")
        work(f"sum up trial {number}", "medical", 0.2)

    assert titles_of_cards(overview_page()) == [
        "Scores",
        "What became of them",
        "Just made it, just missed",
        "What if the threshold were another",
        "Scores by domain",
        "Tools",
        "Novelty",
        "Map",
        "Removed before sending",
    ]


def test_one_domain_needs_no_picture_by_domain(work, overview_page):
    work("one")

    assert "Scores by domain" not in titles_of_cards(overview_page())


def test_each_picture_has_its_words_in_the_caption_and_the_same_as_a_table(work, overview_page):
    for number in range(3):
        work(f"fix test {number}")

    frame = card(overview_page(), "Tools")

    assert frame.find("figcaption").text.strip() == (
        "look was called most: 3 of 3 calls; none failed."
    )
    cells = [cell.text for cell in frame.find("details/table/tbody/tr").iter("bdi")]
    assert cells[:3] == ["look", "3", "0"]


def test_what_lies_nearest_to_the_threshold_is_listed_with_the_line_between(work, overview_page):
    work("a good one")
    work("a poor one", confidence=0.0, uses_tool=False)

    frame = card(overview_page(), "Just made it, just missed")

    above, below = frame.findall("table/tbody/tr")
    assert "".join(above.find("td").itertext()) == "a good one"
    assert (above.get("class"), below.get("class")) == ("kp-line", None)
    assert [cell.text[0] for cell in (above.findall("td")[2], below.findall("td")[2])] == ["+", "−"]


def test_bars_rows_and_spots_lead_where_the_links_say(work, overview_page):
    for number in range(3):
        work(f"fix test {number}")
        work(f"sum up trial {number}", "medical", 0.2)

    found = hrefs(overview_page())

    starts = {href.split("/")[1] for href in found}
    assert starts == {"trace", "scores", "domain", "tool", "state"}
    assert {"/tool/look", "/state/recorded", "/domain/medical"} <= set(found)


def test_where_nothing_leads_anywhere_there_is_no_link(work, overview_page):
    work("one")

    assert hrefs(overview_page(NoWays())) == []


def test_an_empty_file_has_words_in_place_of_pictures(overview_page):
    page = overview_page()

    assert [*parsed(page).iter("{http://www.w3.org/2000/svg}svg")] == []
    assert "No scored runs yet" in text_of(page)
    assert "Nothing recorded yet" in text_of(page)


@pytest.mark.parametrize(
    "name", ['</script><img src=x onerror="alert(1)">', "\u202eabc", "\x00\x1b[2J", "x" * 10_000]
)
def test_no_objective_domain_or_tool_can_break_the_page(kp, work, overview_page, name):
    kp.tool(name=name[:90])(str.upper)
    for number in range(3):
        work(f"{name}{number}", domain=name[:500])

    page = overview_page()

    assert "<img" not in page
    assert "�" in page or "\x00" not in name
    assert [*parsed(page).iter("img")] == []


def test_nothing_on_the_page_can_run_or_be_fetched(work, overview_page):
    for number in range(3):
        work(f"fix test {number}")

    page = parsed(overview_page())

    tags = {mark.tag.rpartition("}")[2] for mark in page.iter()}
    assert not tags & {"script", "img", "iframe", "link", "object", "foreignObject"}
    assert not [mark for mark in page.iter() for name in mark.attrib if name.startswith("on")]
    assert not [mark for mark in page.iter() if mark.get("style")]
