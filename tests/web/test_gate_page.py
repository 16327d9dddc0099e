from page_reading import card, text_of


def test_every_threshold_has_a_row_and_every_domain_its_share(work, gate_page):
    work("fix it")
    work("sum it up", "medical", 0.1)

    page = gate_page()

    (wide,) = card(page, "At each threshold").findall("div")
    rows = wide.findall("table/tbody/tr")
    assert text_of(page).startswith("1 of the last 2 scored runs cleared the gate")
    assert (wide.get("tabindex"), wide.get("role")) == ("0", "region")  # for the keys
    assert wide.get("aria-label") == "At each threshold"
    assert len(rows) == 21
    assert ["".join(cell.itertext()) for cell in rows[0]][:3] == ["0.00", "2", "100%"]
    assert [cell.get("class") for cell in rows[0]][1:3] == ["kp-number"] * 2
    heads = wide.findall("table/thead/tr/th")
    assert [head.text for head in heads][-2:] == ["code", "medical"]


def test_each_domain_is_reported_at_the_threshold_itself(work, gate_page, connection):
    work("fix it")
    decided = "threshold = 0.7551, score = 0.7552, gate = 'threshold 0.7551'"
    connection.execute(f"UPDATE traces SET {decided}")

    rows = card(gate_page(), "At each threshold").findall("div/table/tbody/tr")

    cells = [["".join(cell.itertext()) for cell in row] for row in rows[15:18]]
    assert [row[:3] for row in cells] == [
        ["0.75", "1", "100%"],
        ["→ 0.7551", "1", "100%"],
        ["0.80", "0", "0%"],
    ]


def test_what_is_private_is_not_counted_and_said(work, gate_page, connection):
    for domain in ("code", "medical", "medical"):
        work(f"look into {domain}", domain)
    connection.execute("UPDATE traces SET visibility = 'private' WHERE seq = 3")

    page = gate_page()

    table = card(page, "At each threshold").find("div/table")
    first = ["".join(cell.itertext()) for cell in table.find("tbody/tr")]
    assert (first[:2], first[-1]) == (["0.00", "2"], "1")
    assert table.findall("thead/tr/th")[-1].text == "If not private"
    said = card(page, "Share by threshold").find("figcaption").text
    assert said.endswith(
        "Not counted: 1 scored private run, never sent. If not private, 1 would clear."
    )


def test_the_row_of_the_threshold_in_force_is_marked(work, gate_page, connection):
    work("fix it")
    fixed = card(gate_page(), "At each threshold")
    connection.execute("UPDATE traces SET gate = 'top 10%'")
    moving = card(gate_page(), "At each threshold")

    marked = [cell.text for cell in fixed.iter("bdi") if "→" in cell.text]
    assert marked == ["→ 0.50"]
    assert fixed.find("p").text.endswith("→ marks the threshold in force.")
    assert "→" not in "".join(moving.itertext())


def test_without_scores_or_where_all_is_private_the_page_says_so(work, gate_page, connection):
    assert "No scored runs yet" in text_of(gate_page())

    work("fix it")
    connection.execute("UPDATE traces SET visibility = 'private'")

    page = gate_page()
    assert (
        "All scored runs are private and never leave this machine. If they were not: 1 of 1"
        in text_of(page)
    )
    table = card(page, "At each threshold").find("div/table")
    assert table.findall("thead/tr/th")[1].text == "If not private"
    assert ["".join(cell.itertext()) for cell in table.find("tbody/tr")][:2] == ["0.00", "1"]
