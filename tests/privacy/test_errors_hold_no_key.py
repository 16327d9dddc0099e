"""What is said of a wrong setting names it, and holds nothing of what was given for it."""

import traceback

import made_up
import pytest
from pydantic import ValidationError

from kp_middleware import KnowledgePulse
from kp_middleware.settings import Settings

KEY = made_up.PREFIXED["this registry"]
WRONG = {
    "a name with a slip": ({"apikey": KEY}, "apikey\n  unknown setting"),
    "a list": ({"api_key": [KEY]}, "api_key\n  Input should be a valid string"),
    "bytes in a list": ({"api_key": (KEY.encode(),)}, "api_key\n  Input should be a valid string"),
    "in place of another": ({"threshold": KEY}, "threshold\n  must be a number from 0"),
    "among others": ({"domain": [{"x": KEY}]}, "domain\n  Input should be a valid string"),
}


@pytest.mark.parametrize("make", [KnowledgePulse, Settings])
@pytest.mark.parametrize(("given", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_key_in_the_wrong_place_is_not_quoted(make, given, words):
    with pytest.raises(ValidationError) as raised:
        make(**given)

    told = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    assert words in told
    assert KEY not in told


def test_a_key_in_a_variable_of_another_name_is_not_quoted(monkeypatch):
    monkeypatch.setenv("KP_PROFILES", KEY)

    with pytest.raises(Exception, match="profiles") as raised:
        Settings()

    assert KEY not in "".join(traceback.format_exception(raised.value))
