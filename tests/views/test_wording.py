import pytest

from kp_middleware.views import wording


@pytest.mark.parametrize(
    ("call", "told"),
    {
        'one_line("first\\n\\x1b[2Jsecond")': "first ?[2Jsecond",
        'counted(1, "step"), counted(1200, "step")': ("1 step", "1,200 steps"),
        "outcome(True), outcome(None)": ("succeeded", "not known"),
        'in_words({"email": 2, "api_key": 1, "phone": 0})': "2 email, 1 api_key",
        "short_bar(0.75), short_bar(0.778798)": ("0.75", "0.779"),
        "distance(-0.25), distance(0.69999 - 0.7), distance(0)": ("0.250", "0.00001", "0.000"),
        "percent(8, 165), percent(1, 100_000), percent(0, 0)": ("4.8%", "<0.1%", "0%"),
        "percent(99_999, 100_000), share(48, 600)": (">99.9%", "8.0\xa0%"),
        "duration(0.4), duration(242.2)": ("<1\xa0ms", "242\xa0ms"),
        "duration(4200), duration(754_000)": ("4.2\xa0s", "12\xa0min 34\xa0s"),
        'day("2026-11-01"), day("2026-11-01", year=False)': ("1 Nov 2026", "1 Nov"),
        'minute("2026-11-01T12:30:59.123Z")': "2026-11-01 12:30",
        'shortened("Find the invoice", 10), shortened(" ", 10)': ("Find the …", "(no objective)"),
        "signed(0.1), signed(1234, 0)": ("+0.100", "+1,234"),
        'short_id("kp:trace:1339c01f-d20b-469c-90a1-9b4f1b03419e")': "1339c01f",
        'cut("as it is", 8), cut("longer than that", 8)': ("as it is", "longer…"),
    }.items(),
)
def test_numbers_days_and_texts_are_written_so_that_people_read_them(call, told):
    assert eval(call, vars(wording)) == told
