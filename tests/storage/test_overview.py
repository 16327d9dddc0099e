import json

import pytest
from stored_runs import query_plan, run, tool_step

from kp_middleware.storage import Failure


@pytest.fixture
def at(connection):
    """Moves a trace to another day."""

    def at(seq, day):
        connection.execute(
            "UPDATE traces SET started_at = ? WHERE seq = ?", (f"{day}T12:00:00.000Z", seq)
        )

    return at


@pytest.fixture
def add_vector(connection):
    def add_vector(seq, *numbers, embedder="e"):
        import numpy as np

        connection.execute(
            "INSERT INTO vectors (trace_seq, embedder, added_at_ms, vector) VALUES (?, ?, 0, ?)",
            (seq, embedder, np.asarray(numbers, "<f4").tobytes()),
        )

    return add_vector


def put_in_outbox(connection, seq, state, *, reason=None, redactions=None):
    connection.execute(
        "INSERT INTO outbox (trace_seq, state, reason, idempotency_key, registry, redactor,"
        " redactions) VALUES (?, ?, ?, '', '', '', ?)",
        (seq, state, reason, json.dumps(redactions or {})),
    )


@pytest.mark.parametrize("gate", ["top 10%", "threshold of the legal team"])
def test_where_the_bar_is_another_for_each_run_those_that_cleared_are_counted(
    history, connection, keep, gate
):
    for score in (0.291, 0.292, 0.6):
        keep(score=score, decision="forward" if score == 0.291 else "withhold")
    connection.execute("UPDATE traces SET gate = ?", (gate,))

    slices = history.scores()

    assert slices.threshold is None
    assert [one[1:4] for one in slices.slices] == [(29, 2, 1), (60, 1, 0)]


def test_scores_are_counted_by_domain_and_hundredth(history, keep):
    for score in (0.29, 0.295, 0.75, 1.0):
        keep(score=score, domain="code")
    keep(score=0.75, domain="law")
    keep()

    slices = history.scores()

    assert slices.threshold == 0.75
    assert slices.domains == ("code", "law")
    assert (slices.traces, slices.above) == (5, 3)
    assert [one[:4] for one in slices.of("code").slices] == [
        ("code", 29, 2, 0),
        ("code", 75, 1, 1),
        ("code", 100, 1, 1),
    ]
    assert [slices.count_reaching(at) for at in (0, 29, 30, 75, 76, 100)] == [5, 5, 3, 3, 1, 1]


def test_bins_of_scores_begin_at_their_bounds_and_the_last_has_one(history, keep):
    for score in (0.0, 0.29, 0.2999, 0.1 + 0.2, 0.3, 0.95, 1.0):
        keep(score=score)
    keep()

    counts = {round(100 * least): count for least, count in history.score_bins(5) if count}

    assert counts == {0: 1, 25: 2, 30: 2, 95: 2}
    assert [count for _, count in history.score_bins(10)] == [1, 0, 2, 2, 0, 0, 0, 0, 0, 2]


def test_forwarded_runs_that_were_never_queued_are_counted(history, keep, connection):
    for state in ("pending", "sending", "sent", "rejected", "blocked", "cancelled"):
        put_in_outbox(connection, keep(score=0.9, decision="forward"), state)
    put_in_outbox(connection, keep(score=0.1), "sent")  # withheld since it was sent
    keep(score=0.1)
    none_yet = history.not_queued()
    [keep(score=0.9, decision="forward") for _ in range(2)]

    assert (none_yet, history.not_queued()) == (0, 2)


@pytest.mark.parametrize(
    ("gate", "left"),
    [
        ("threshold 0.7435", [("code", 74, 2, 1), ("code", 80, 1, 1)]),
        ("top 10%", [("code", 74, 2, 0), ("code", 80, 1, 1)]),
    ],
)
def test_what_is_private_is_distinguished_on_both_sides_of_the_threshold(
    history, connection, keep, gate, left
):
    for visibility in ("network", "private"):
        for score in (0.743, 0.744, 0.8):
            decision = "forward" if score == 0.8 else "withhold"
            keep(score=score, decision=decision, visibility=visibility, domain="code")
    keep(score=0.9, decision="forward", visibility="private", domain="law")
    connection.execute("UPDATE traces SET threshold = 0.7435, gate = ?", (gate,))

    slices = history.scores()

    assert slices.traces == 7
    assert [one[:4] for one in slices.without_private.slices] == left
    assert slices.of("code").traces - slices.of("code").without_private.traces == 3


def test_the_funnel_counts_what_came_how_far(history, connection, keep):
    seqs = [keep(score=0.8, decision="forward") for _ in range(5)]
    keep(score=0.2)
    put_in_outbox(connection, seqs[0], "sent")
    put_in_outbox(connection, seqs[1], "pending")
    put_in_outbox(connection, seqs[2], "blocked", reason="residual_secret")
    put_in_outbox(connection, seqs[3], "rejected")

    funnel = history.overview().funnel

    assert funnel[:7] == (6, 5, 4, 1, 1, 1, 1)
    assert funnel.reasons == {"residual_secret": 1}


def test_novelty_has_a_median_and_most_of_each_day(history, connection, keep, at):
    for novelty, day in (
        *((novelty, "2026-11-01") for novelty in (0.0, 0.2, 0.4, 0.6, 1.0)),
        (0.3, "2026-11-02"),
        (0.9, "2020-01-01"),
    ):
        seq = keep(score=0.5)
        connection.execute("UPDATE traces SET novelty = ? WHERE seq = ?", (novelty, seq))
        at(seq, day)

    first, second = history.overview().novelty

    assert first == ("2026-11-01", pytest.approx(0.08), 0.4, pytest.approx(0.84))
    assert second == ("2026-11-02", *[pytest.approx(0.3)] * 3)


def test_errors_that_differ_in_their_numbers_are_one(history, store):
    for text in ("404: no page 70001", *["404: no page 12.5"] * 2, "503: no page 80002", "no page"):
        store.record(run("a", tool_step("error_recovery", "read", output_summary=text)))

    first, *others = history.overview().failures

    assert first == Failure("read", "404: no page 12.5", 3)
    assert [(one.error, one.times) for one in others] == [
        ("503: no page 80002", 1),
        ("no page", 1),
    ]


def test_what_is_nearest_to_its_threshold_is_found_on_both_sides(history, keep):
    for score in (0.1, 0.74996, 0.75004, 0.76, 0.9, 0.2):
        keep(score=score)

    missed = history.overview().missed

    assert [run.score for run in missed] == [0.9, 0.76, 0.75004, 0.74996, 0.2, 0.1]


def test_removals_are_summed_by_the_week_they_began_in(history, connection, keep, at):
    for day, redactions in (
        ("2026-11-02", {"email": 2}),
        ("2026-11-08", {"email": 1, "ip": 1}),
        ("2026-11-09", {"email": 4}),
        ("2026-01-01", {"email": 9}),
    ):
        seq = keep(score=0.8, decision="forward")
        at(seq, day)
        put_in_outbox(connection, seq, "sent", redactions=redactions)

    removals = history.overview().removals

    assert [tuple(one) for one in removals] == [
        ("2026-11-02", "email", 3),
        ("2026-11-02", "ip", 1),
        ("2026-11-09", "email", 4),
    ]


def test_points_are_the_newest_that_can_be_compared(history, keep, add_vector):
    old, other, new = keep(), keep(), keep(score=0.9, decision="forward")
    add_vector(old, 1, 0)
    add_vector(other, 1, 0, embedder="another")
    add_vector(new, 0, 1)

    points = history.points()

    assert [(point.seq, point.cleared) for point in points] == [(new, True), (old, False)]


def test_around_a_run_it_comes_first_and_then_the_one_it_was_nearest_to(
    history, connection, keep, add_vector
):
    seqs = [keep() for _ in range(4)]
    for seq in seqs:
        add_vector(seq, 1, 0)
    connection.execute("UPDATE traces SET nearest_seq = ? WHERE seq = ?", (seqs[0], seqs[1]))

    points = history.points(around=seqs[1])

    assert [point.seq for point in points] == [seqs[1], seqs[0], seqs[3], seqs[2]]
    assert history.points(around=keep()) == ()  # it has no vector


def test_the_nearest_is_no_neighbour_any_more_where_another_embedder_read_the_run_anew(
    history, connection, keep, add_vector
):
    near, around = keep(), keep()
    add_vector(near, 1, 0)
    add_vector(around, 1, 0)
    add_vector(around, 0, 1, embedder="another")
    connection.execute("UPDATE traces SET nearest_seq = ? WHERE seq = ?", (near, around))

    points = history.points(around=around)

    assert [point.seq for point in points] == [around]


def test_since_leaves_out_what_began_before(history, keep, at, add_vector):
    old, private, new = keep(score=0.9), keep(score=0.9, visibility="private"), keep(score=0.5)
    at(old, "2026-01-01")
    at(private, "2026-01-01")
    at(new, "2026-11-01")
    add_vector(old, 1, 0)

    overview = history.overview(since="2026-06-01T00:00:00.000Z")

    assert overview.funnel.recorded == overview.scores.traces == 1
    assert overview.scores.without_private.traces == 1
    assert [run.seq for run in overview.missed] == [new]
    assert overview.points == ()
    assert history.first_since("2027-01-01T00:00:00.000Z") == new + 1


def test_an_empty_file_has_an_overview(history):
    overview = history.overview()

    assert overview.scores.threshold is None
    assert overview.funnel.recorded == 0
    assert overview.last.runs == 0
    assert overview[3:] == (
        (),
        (),
        (),
        (),
        (),
        (0, 0, 0, 0, False),
        (0, 0),
        (),
        (),
        (),
        (),
        (0, 0),
    )


def test_the_best_come_first(history, keep):
    seqs = [keep(score=score) for score in (0.11, 1.0, 0.96)]
    keep()

    assert history.best(2) == [seqs[1], seqs[2]]


def test_the_overview_reads_scores_and_tools_from_indices_alone(history, connection, keep):
    keep(score=0.5)

    steps = query_plan(connection, history.overview)

    assert any("SCAN traces USING" in step and "traces_counted" in step for step in steps)
    assert not [step for step in steps if "(rowid>?)" in step and "SEARCH traces" in step]
    assert any("steps USING COVERING INDEX steps_tool" in step for step in steps)
    assert "SCAN steps" not in steps
    assert not [step for step in steps if "documents" in step]
