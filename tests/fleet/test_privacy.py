"""Whoever reads the database finds no secret, no contact by default, and no private run."""

import json
from urllib.parse import unquote

import pytest
from pods import end, run_of

pytestmark = pytest.mark.timeout(120)

SECRETS = {
    "key": "sk-ant-api03-" + "Zq3v9XkLmN8pRt5wYb2d" * 3,
    "token": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "password": "hunter2-Correct-Horse",
}
CONTACTS = {
    "email": "erika.mustermann@example.com",
    "phone": "+49 30 901820",
    "iban": "DE89370400440532013000",
}
SAID = (
    f"export ANTHROPIC_API_KEY={SECRETS['key']} and GITHUB_TOKEN={SECRETS['token']}"
    f" password: {SECRETS['password']}. Write to {CONTACTS['email']} or call {CONTACTS['phone']},"
    f" pay to {CONTACTS['iban']}"
)
PRIVATE = "the plan of which nobody shall know"


def record_what_is_delicate(pod, **settings):
    """Secrets and contacts in a run that clears and one that stays; a private run."""
    with pod.pulse(**settings) as kp:
        for _ in range(2):
            run = run_of(0, SAID)  # the second is known, and stays
            told = {"objective": f"{run.task.objective} {SAID}"}
            kp.submit(run.model_copy(update={"task": run.task.model_copy(update=told)}))
        kp.flush(30)
    with pod.pulse(visibility="private", **settings) as kp:
        kp.submit(run_of("private", PRIVATE))
        kp.flush(30)


def texts(dump):
    """Return the texts in a dump: as they are, and bytes decoded."""
    parts = [bytes.fromhex(part.split("'")[0]) for part in dump.split(r"'\x")[1:]]
    return dump + "".join(part.decode(errors="replace") for part in parts)


@pytest.mark.parametrize("documents", ["redacted", "none", "full"])
def test_what_a_dump_of_the_database_says(
    documents, common_server, shared, generous, pods, start, ask
):
    [pod] = pods(1, shared=shared, registry=generous, threshold=0.75, shared_documents=documents)

    assert end([start(pod, record_what_is_delicate)]) == [0]

    dump = texts(common_server.dump(unquote(shared.rpartition("/")[2])))
    (private,) = [id for (id,) in pod.rows("SELECT id FROM traces WHERE visibility = 'private'")]
    assert len(ask(shared, "SELECT id FROM kp.log")) == 2
    assert private not in dump
    assert PRIVATE not in dump
    assert [name for name, text in SECRETS.items() if text in dump] == []
    assert generous.api_key not in dump
    if documents != "full":
        assert [name for name, text in CONTACTS.items() if text in dump] == []
    assert (CONTACTS["email"] in dump) == (documents == "full")
    shipped = {
        id: json.loads(body) for id, body in ask(shared, "SELECT id, body FROM kp.documents")
    }
    assert bool(shipped) == (documents != "none")
    if documents == "redacted":  # what is shipped is what leaves
        for id, sent in generous.documents.items():
            left = sent.model_dump(mode="json")
            assert (shipped[id]["steps"], shipped[id]["task"]) == (left["steps"], left["task"])
