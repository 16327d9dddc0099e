from page_reading import card, text_of, titles_of_cards


def test_every_threshold_has_a_row_and_every_domain_its_share(work, what_if_page):
    work("fix it")
    work("sum it up", "medical", 0.1)

    page = what_if_page()

    rows = card(page, "At each threshold").findall("table/tbody/tr")
    assert len(rows) == 21
    assert ["".join(cell.itertext()) for cell in rows[0]][:3] == ["0.00", "2", "100 %"]
    heads = [head.text for head in card(page, "By domain").findall("table/thead/tr/th")]
    assert heads == ["Domain", "0.45", "0.50", "0.55"]
    assert "Scores by domain" in titles_of_cards(page)


def test_without_scores_the_page_says_so(what_if_page):
    assert "No scored runs yet" in text_of(what_if_page())
