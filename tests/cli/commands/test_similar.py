import numpy as np
import pytest
from sample_runs import put, run, step, with_value
from terminal import typed


def unit(*values):
    vector = np.zeros(384, dtype="<f4")
    vector[: len(values)] = values
    return (vector / (np.linalg.norm(vector) or 1)).tobytes()


@pytest.fixture
def remember(db):
    """Keeps a trace with a vector."""

    def keep(name, *values, **facts):
        score = None if facts.pop("unscored", False) else with_value(0.5)
        vector = unit(*values) if values else None
        made = run(name, step("thought"), id=name, **facts.pop("run", {}))
        return put(db, made, score, vector=vector, **facts)

    return keep


@pytest.fixture
def neighbours(remember):
    """The one that is asked about comes first."""
    remember("here", 1, 0)
    remember("far", 0, 1)
    remember("opposite", -1, 0)
    remember("near", 1, 0.1)
    remember("between", 1, 1)


@pytest.mark.usefixtures("neighbours")
def test_the_nearest_by_the_same_model_come_first_with_their_similarity(remember, as_json, db):
    remember("another model", 1, 0, embedder="another")
    put(db, run("short", step("thought")), with_value(0.5), vector=b"\0\0\x80?" * 8)

    rows = as_json("similar", "here")

    assert [row["id"].removeprefix("kp:trace:") for row in rows] == (
        ["near", "between", "far", "opposite"]
    )
    assert [row["similarity"] for row in rows] == pytest.approx([0.995037, 0.707107, 0, -1])


@pytest.mark.usefixtures("neighbours")
def test_columns_are_those_that_are_promised_and_people_read_short_ids_and_words(db, type_command):
    heading, first = type_command("similar", "here", "-n", "1").stdout.splitlines()
    told = typed("--db", str(db), "similar", "here", "-n", "1").splitlines()

    assert heading.split("\t") == ["id", "similarity", "score", "success", "domain", "objective"]
    assert first.split("\t")[2:] == ["0.5", "1", "general", "near"]
    assert told[1].split() == ["near", "0.995", "0.500", "succeeded", "general", "near"]


def test_a_trace_is_not_its_own_neighbour_nor_is_there_one_where_it_is_alone(
    remember, type_command, as_json
):
    remember("here", 1, 0)

    assert as_json("similar", "here") == []
    assert type_command("similar", "here", "--fail-empty").exit_code == 4


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "scored without a model"),
        ({"unscored": True}, "its state is recorded"),
        ({"unscored": True, "run": {"complete": False}}, "its state is incomplete"),
    ],
    ids=["no model", "recorded", "incomplete"],
)
def test_a_trace_without_a_vector_is_an_error_in_words(remember, type_command, facts, words):
    remember("here", **facts)

    result = type_command("similar", "here")

    assert result.exit_code == 1
    assert f"run here has no embedding: {words}" in result.stderr
