import json

import pytest
from import_samples import (
    ATIF,
    MINI,
    MINI_RESPONSES,
    TRAJECTORY,
    call,
    claude,
    claude_answer,
    claude_session,
    codex_session,
    conversation,
    lines,
    step_tuples,
)


def test_a_run_of_claude_code_begins_at_each_message_of_a_person(read):
    (first, second), context = read("claude-code", lines(*claude_session()))

    assert step_tuples(first) == [
        ("observation", "", "Refund order A1."),
        ("thought", "", "Look first."),
        ("tool_call", "refund", ""),
        ("error_recovery", "refund", "closed"),
        ("thought", "", "The till is closed."),
    ]
    assert (first.trace.task.objective, first.trace.outcome.result_summary) == (
        "Refund order A1.",
        "The till is closed.",
    )
    assert first.trace.metadata.created_at == "2026-11-01T09:00:01.000Z"
    assert (first.duration_ms, first.input_tokens, first.output_tokens) == (5000, 15, 3)
    assert (first.thread_id, first.model, first.complete) == ("s1", "a-model", True)
    assert first.trace.steps[2].tool.mcp_server == "shop"
    assert first.trace.steps[3].latency_ms == 2000
    assert second.trace.task.objective == "Then tomorrow."
    assert context.skipped == {"unknown_type": 1}


def test_what_the_program_says_in_a_persons_name_begins_no_run(read):
    queued = {"type": "queued_command", "commandMode": "prompt"}
    session = [
        claude("user", "<system-reminder>x</system-reminder>", 0, id="u0"),
        claude("user", "Do it.", 1, id="u1"),
        claude("user", "[Request interrupted by user]", 2, id="u2", parent="u1"),
        claude("user", "continued: …", 3, id="u3", isCompactSummary=True),
        claude("user", "an order to a helper", 3, id="u4", isSidechain=True),
        claude_answer("the helper's answer", 4, id="a1", parent="u4", isSidechain=True),
        {"type": "attachment", "attachment": {"type": "skill_listing"}},
        {"type": "attachment", "attachment": queued | {"prompt": "And count."}},
        {"type": "attachment", "attachment": queued | {"prompt": "<task-notification>x"}},
    ]

    (run,), context = read("claude-code", lines(*session))

    assert step_tuples(run) == [
        ("observation", "", "Do it."),
        ("thought", "", "the helper's answer"),
        ("observation", "", "And count."),
    ]
    assert context.skipped == {}
    assert [facts.agent for facts in run.facts][1] == "subagent"
    assert not run.complete


def test_a_command_that_the_agent_answers_is_a_run_of_its_own(read):
    def command(words, at, id, parent):
        name, _, given = words.partition(" ")
        tags = f"<command-message>x</command-message>\n<command-name>{name}</command-name>"
        return claude(
            "user", f"{tags}<command-args>{given}</command-args>", at, id=id, parent=parent
        )

    printed = "<local-command-stdout>2 tokens</local-command-stdout>"
    seen = [{"type": "text", "text": "<ide_opened_file>a.py</ide_opened_file>"}]
    session = [
        claude("user", [*seen, {"type": "text", "text": "Mend it."}], 0, id="u1"),
        claude_answer("It is mended.", 1, id="a1", parent="u1"),
        command("/cost", 2, "u2", "a1"),
        claude("user", printed, 2, id="u3", parent="u2"),
        claude_answer("No response requested.", 3, id="a2", parent="u3",
            message={"model": "<synthetic>"}),
        claude_answer("By the way, I linted it.", 3, id="a3", parent="a2"),
        command("/review the last commit", 5, "u4", "a3"),
        claude("user", "Review $ARGUMENTS.", 5, id="u5", parent="u4", isMeta=True),
        claude_answer("It is good.", 7, id="a4", parent="u5"),
        command("skill-of-the-agent", 8, "u6", "a4"),
        claude_answer("I used a skill.", 9, id="a5", parent="u6"),
    ]  # fmt: skip

    (first, second), _ = read("claude-code", lines(*session))

    assert step_tuples(first) == [
        ("observation", "", "Mend it."),
        ("thought", "", "It is mended."),
        ("thought", "", "By the way, I linted it."),
    ]
    assert step_tuples(second) == [
        ("observation", "", "/review the last commit"),
        ("thought", "", "It is good."),
        ("thought", "", "I used a skill."),
    ]
    assert (first.duration_ms, second.duration_ms) == (3000, 4000)


def test_what_sub_agents_did_is_in_the_run_that_began_them(read, tmp_path):
    task = {"type": "tool_use", "id": "t1", "name": "Task", "input": {"prompt": "Count."}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "Three."}
    folder = tmp_path / "s1" / "subagents"
    folder.mkdir(parents=True)
    (tmp_path / "s1.jsonl").write_text(
        lines(
            claude("user", "How many?", 0, id="u1"),
            claude("assistant", [task], 1, id="a1", parent="u1"),
            claude("user", [result], 5, id="u2", parent="a1"),
            claude_answer("There are three.", 6, id="a2", parent="u2"),
        )
    )
    look = {"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": "wc"}}
    (folder / "agent-x.jsonl").write_text(
        lines(
            claude("user", "Count.", 2, id="x1", isSidechain=True),
            claude("assistant", [look], 2, id="x2", parent="x1", isSidechain=True),
            claude_answer("Three.", 4, id="x3", parent="x2", isSidechain=True),
        )
        + '{"cut'
    )
    (folder / "agent-x.meta.json").write_text('{"agentType": "Explore", "toolUseId": "t1"}')
    (folder / "link.jsonl").symlink_to(folder / "agent-x.jsonl")
    (folder / "agent-acompact-1.jsonl").write_bytes((folder / "agent-x.jsonl").read_bytes())

    (run,), context = read("claude-code", tmp_path / "s1.jsonl")

    assert [
        (step[1] or step[2], facts.agent)
        for step, facts in zip(step_tuples(run), run.facts, strict=True)
    ] == [
        ("How many?", None),
        ("Task", None),
        ("Bash", "subagent"),
        ("Three.", "subagent"),
        ("Task", None),
        ("There are three.", None),
    ]
    assert {facts.parent for facts in run.facts if facts.agent} == {run.facts[1].call_id}
    assert context.skipped == {"not_json": 1, "link": 1}


def test_an_answer_without_words_has_its_tokens_at_its_first_call(read):
    usage = {"input_tokens": 10, "output_tokens": 3}
    two = [{"type": "tool_use", "id": id, "name": "Bash", "input": {}} for id in ("t1", "t2")]
    answer = claude("assistant", two, 1, id="a1", message={"model": "a-model", "usage": usage})

    (run,), _ = read("claude-code", lines(claude("user", "How many?", 0, id="u1"), answer))

    facts = [(one.model, one.input_tokens, one.output_tokens) for one in run.facts]
    assert facts == [(None, None, None), ("a-model", 10, 3), (None, None, None)]


def test_a_line_written_twice_counts_once_and_tokens_are_those_of_the_last_line(read):
    usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 40}
    session = [line for line in claude_session() for _ in range(2)]
    session[8]["message"] = session[8]["message"] | {"usage": usage}

    (first, second), _ = read("claude-code", lines(*session))

    assert (len(first.trace.steps), first.output_tokens) == (5, 40)
    assert second.trace.task.objective == "Then tomorrow."


def test_a_branch_repeats_runs_under_their_ids(read):
    runs, _ = read("claude-code", lines(*claude_session()))
    copied = [
        line | {"sessionId": "s9", "forkedFrom": {"sessionId": "s1", "messageUuid": line["uuid"]}}
        for line in claude_session()
        if "uuid" in line
    ]
    own = [claude("user", "Go on.", 20, id="u9", session="s9"), claude_answer("Yes.", 21, id="a9",
        parent="u9", session="s9")]  # fmt: skip

    *repeated, new = read("claude-code", lines(*copied, *own))[0]

    assert [run.trace.id for run in repeated] == [run.trace.id for run in runs]
    assert [run.thread_id for run in (*repeated, new)] == ["s1", "s1", "s9"]


@pytest.mark.parametrize(
    "line",
    [
        claude_answer("API Error: 500", 2, id="a1", parent="u1", message={"model": "<synthetic>"},
            isApiErrorMessage=True),
        claude("assistant", [{"type": "thinking", "thinking": "Hm."}], 2, id="a1", parent="u1"),
    ],
    ids=["an error of the API", "reasoning"],
)  # fmt: skip
def test_what_is_no_answer_leaves_a_run_incomplete(read, line):
    (run,), _ = read("claude-code", lines(claude("user", "Do it.", 1, id="u1"), line))

    assert (run.trace.outcome.result_summary, run.complete, run.model) == ("", False, None)


def test_a_branch_that_was_abandoned_is_no_run(read):
    session = [
        *claude_session(),
        claude("user", "Rather today.", 20, id="u9", parent="a3"),
        claude_answer("Today.", 21, id="a9", parent="u9"),
    ]

    runs, _ = read("claude-code", lines(*session))

    assert [run.trace.task.objective for run in runs] == ["Refund order A1.", "Rather today."]


def test_turns_of_codex_that_a_person_took_back_are_no_runs(read):
    rolled_back = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    first, (asked, answered) = codex_session()[:13], codex_session()[13:15]
    session = lines(*first, asked, answered, rolled_back, asked, answered)

    runs, _ = read("codex", session)

    assert [run.trace.task.objective for run in runs] == ["List the files.", "Make one."]
    (whole,), _ = read("codex", session, whole_sessions=True)
    assert len(whole.trace.steps) == 9


def test_codex_names_the_server_of_a_tool_and_its_failure_beside_the_call(read):
    def line(kind, **payload):
        return {"type": kind, "payload": payload}

    asked = codex_session()[13]
    named = {"name": "find", "namespace": "mcp__shop", "arguments": "{}", "call_id": "c1"}
    session = [
        asked,
        line("response_item", type="function_call", **named),
        line("event_msg", type="mcp_tool_call_end", call_id="c1", result={"Err": "closed"}),
        line("response_item", type="function_call_output", call_id="c1", output="closed"),
        line("response_item", type="tool_search_call", call_id="c2", arguments={"query": "x"}),
        line("response_item", type="tool_search_output", call_id="c2", tools=[{"name": "y"}]),
    ]

    (run,), _ = read("codex", lines(*session))

    assert step_tuples(run)[1:] == [
        ("tool_call", "find", ""),
        ("error_recovery", "find", "closed"),
        ("tool_call", "tool_search", ""),
        ("observation", "tool_search", '[{"name": "y"}]'),
    ]
    assert run.trace.steps[1].tool.mcp_server == "shop"


def test_a_session_of_codex_is_what_the_model_saw(read):
    (first, second), context = read("codex", lines(*codex_session()))

    assert step_tuples(first) == [
        ("observation", "", "List the files."),
        ("thought", "", "Look."),
        ("tool_call", "shell", ""),
        ("error_recovery", "shell", "no"),
        ("thought", "", "There are none."),
    ]
    assert (first.input_tokens, first.output_tokens, first.model) == (7, 2, "a-model")
    assert first.trace.steps[3].latency_ms == 1000
    assert second.trace.steps[-1].type == "error_recovery"
    assert (first.complete, second.complete) == (True, False)
    assert (first.thread_id, context.skipped) == ("s2", {})


def test_a_session_of_codex_without_envelopes_has_the_time_of_its_head(read):
    bare = [line["payload"] for line in codex_session() if line["type"] == "response_item"]
    head = {"id": "s0", "timestamp": "2025-05-07T17:24:21.123Z", "instructions": None}

    (first, second), context = read("codex", lines(head, {"record_type": "state"}, *bare))

    assert [kind for kind, *_ in step_tuples(first)] == [
        "observation", "thought", "tool_call", "observation", "thought"
    ]  # fmt: skip
    assert first.trace.metadata.created_at == second.trace.metadata.created_at == head["timestamp"]
    assert (first.thread_id, first.duration_ms, context.skipped) == ("s0", None, {})
    assert read("codex", lines({"a": 1}, {"type": "b"}))[1].skipped == {"unknown_type": 2}


@pytest.mark.parametrize(
    "texts",
    [
        ["# AGENTS.md instructions", "<environment_context>x</environment_context>", "Mend it."],
        ["# Context from my IDE setup:\n## Open tabs:\n\n## My request for Codex:\nMend it.\n"],
        ["Mend it.", '<hook_prompt hook_run_id="1">Go on.</hook_prompt>'],
        ["<my_form> fails. Mend it."],
    ],
)
def test_what_codex_puts_before_a_request_is_not_part_of_it(read, texts):
    content = [{"type": "input_text", "text": text} for text in texts]
    asked = {"type": "message", "role": "user", "content": content}
    answered = {"type": "message", "role": "assistant", "content": "Done."}
    session = [{"type": "response_item", "payload": item} for item in (asked, answered)]

    (run,), _ = read("codex", lines(*session))

    assert run.trace.task.objective in {"Mend it.", texts[0]}
    assert run.thread_id == "sample"


@pytest.mark.parametrize(("format_", "session"), [
    ("claude-code", claude_session()),
    ("codex", codex_session()),
], ids=["claude-code", "codex"])  # fmt: skip
def test_a_session_can_be_one_run(read, format_, session):
    (run,), _ = read(format_, lines(*session), whole_sessions=True)

    people = [text for kind, tool, text in step_tuples(run) if kind == "observation" and not tool]
    assert len(people) == 2
    assert run.trace.task.objective == people[0]


def test_calls_that_share_an_id_are_paired_in_order(read):
    (run,), _ = read("messages", {"messages": conversation()})

    assert step_tuples(run)[2:6] == [
        ("tool_call", "look_up", ""),
        ("tool_call", "ask", ""),
        ("observation", "look_up", "12 EUR"),
        ("observation", "ask", "yes"),
    ]
    ids = [facts.call_id for facts in run.facts][2:6]
    assert ids == [ids[0], ids[1], ids[0], ids[1]]
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("document", "success", "source"),
    [
        ({"messages": conversation()}, True, "assumed"),
        ({"messages": json.dumps(conversation())}, True, "assumed"),
        ({"traj": conversation(), "reward": 1.0}, True, "verdict"),
        ({"traj": conversation(), "reward": 0}, False, "verdict"),
        ({"messages": conversation(), "resolved": False}, False, "verdict"),
        ({"messages": conversation(), "score": 0.9}, True, "verdict"),
        ({"messages": conversation(), "reward": "much"}, True, "assumed"),
    ],
)
def test_a_verdict_becomes_success_and_silence_is_assumed(read, document, success, source):
    (run,), _ = read("messages", lines(document))

    assert (run.trace.metadata.success, run.success_source) == (success, source)


def test_a_failed_tool_of_tau_bench_says_so_itself(read):
    document = {"traj": conversation("Error: no such order"), "reward": 0.0, "task_id": 1}

    (run,), _ = read("messages", [document])

    assert run.shape.recoveries == 1


def test_blocks_of_anthropic_and_items_of_responses_are_messages_too(read):
    call = {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"order": "A1"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "12", "is_error": True}
    blocks = [
        {"role": "user", "content": "Refund."},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, call]},
        {"role": "user", "content": [result]},
    ]
    items = [
        {"role": "user", "content": "Refund."},
        {"type": "reasoning", "summary": [{"text": "Hm."}]},
        {"type": "function_call", "name": "look_up", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "12", "status": "failed"},
    ]

    (first, second), _ = read("messages", lines(blocks, items))

    assert step_tuples(first) == step_tuples(second)
    assert step_tuples(first)[1:] == [
        ("thought", "", "Hm."),
        ("tool_call", "look_up", ""),
        ("error_recovery", "look_up", "12"),
    ]


def test_sharegpt_and_gemini_say_the_same_in_their_own_words(read):
    sharegpt = [
        {"from": "system", "value": "You are a support desk."},
        {"from": "human", "value": "Refund."},
        {"from": "function_call", "value": '{"name": "look_up", "arguments": {"order": "A1"}}'},
        {"from": "observation", "value": "12"},
        {"from": "gpt", "value": "<think>Hm.</think>Done."},
    ]
    called = {"functionCall": {"name": "look_up", "args": {"order": "A1"}}}
    returned = {"functionResponse": {"name": "look_up", "response": "12"}}
    gemini = [
        {"role": "user", "parts": [{"text": "Refund."}]},
        {"role": "model", "parts": [called]},
        {"role": "user", "parts": [returned]},
        {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "Done."}]},
    ]
    documents = {"conversations": sharegpt, "model": "a-model"}, {"contents": gemini}

    (first, second), _ = read("messages", lines(*documents))

    assert step_tuples(first) == step_tuples(second)
    assert step_tuples(first) == [
        ("observation", "", "Refund."),
        ("tool_call", "look_up", ""),
        ("observation", "look_up", "12"),
        ("thought", "", "Hm."),
        ("thought", "", "Done."),
    ]
    assert (first.model, first.trace.outcome.result_summary) == ("a-model", "Done.")


CALLED = {"role": "assistant", "content": None, "tool_calls": [call("c1"), call("c2", "ask")]}


@pytest.mark.parametrize(
    ("messages", "last"),
    [
        ([{"role": "assistant", "content": None, "refusal": "No."}], ("thought", "", "No.")),
        ([{"object": "response"}], ("observation", "", "Refund.")),
        ([CALLED, {"role": "tool", "content": "12"}], ("observation", "look_up", "12")),
        (
            [CALLED, {"role": "tool", "content": [{"type": "missing", "loc": ["order"]}]}],
            ("observation", "look_up", '[{"type": "missing", "loc": ["order"]}]'),
        ),
        (
            [CALLED, {"role": "tool", "name": "ask", "content": "yes"}],
            ("observation", "ask", "yes"),
        ),
        (
            [{"type": "mcp_call", "id": "m1", "name": "find", "arguments": "{}", "output": "here"}],
            ("observation", "find", "here"),
        ),
        (
            [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "server_tool_use", "id": "s1", "name": "search", "input": {}},
                        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": "here"},
                    ],
                }
            ],
            ("observation", "search", "here"),
        ),
    ],
    ids=[
        "a refusal",
        "an empty response",
        "no id",
        "data in a list",
        "no id but a name",
        "a hosted MCP tool",
        "a server's tool",
    ],
)
def test_rarer_messages_are_steps_too(read, messages, last):
    (run,), _ = read("messages", [{"role": "user", "content": "Refund."}, *messages])

    assert step_tuples(run)[-1] == last


@pytest.mark.parametrize("indent", [None, 1], ids=["one line", "many lines"])
@pytest.mark.parametrize("as_list", [False, True], ids=["a document", "an array"])
def test_a_file_may_be_one_document_or_an_array_of_them(read, indent, as_list):
    document = {"traj": conversation(), "reward": 1}

    (run,), context = read(
        "messages", json.dumps([document] if as_list else document, indent=indent)
    )

    assert (run.trace.task.objective, context.skipped) == ("Refund order A1.", {})


def test_a_bare_list_of_messages_is_one_run(read):
    (run,), _ = read("messages", json.dumps(conversation(), indent=1))

    assert len(run.trace.steps) == 7


def test_a_trajectory_of_swe_agent_has_its_task_and_commands(read):
    (run,), _ = read("swe-agent", json.dumps(TRAJECTORY, indent=2))

    assert run.trace.task.objective == "Mend the parser."
    assert step_tuples(run)[1:4] == [
        ("thought", "", "Look."),
        ("tool_call", "ls", ""),
        ("observation", "ls", "a.py\n"),
    ]
    assert run.trace.steps[3].latency_ms == 500
    assert (run.success_source, run.trace.outcome.result_summary) == ("assumed", "diff --git a b")


def test_a_run_of_mini_swe_agent_may_hold_responses_of_openai(read):
    (run,), _ = read("swe-agent", json.dumps(MINI_RESPONSES))

    assert step_tuples(run)[1:] == [
        ("thought", "", "Look."),
        ("tool_call", "bash", ""),
        ("error_recovery", "bash", "no"),
    ]
    assert run.trace.steps[2].input == {"command": "ls"}
    assert (run.model, run.input_tokens) == ("a-model", 7)


def test_a_run_of_mini_swe_agent_that_ran_out_of_steps_has_failed(read):
    (run,), _ = read("swe-agent", json.dumps(MINI))

    assert step_tuples(run)[2:] == [
        ("tool_call", "bash", ""),
        ("error_recovery", "bash", MINI["messages"][3]["content"]),
    ]
    assert (run.trace.metadata.success, run.success_source) == (False, "verdict")
    assert run.error_type == "LimitsExceeded"

    (run,), _ = read("swe-agent", json.dumps(MINI | {"info": {"exit_status": ""}}))

    assert not run.complete


def test_a_trajectory_of_atif_has_its_calls_results_and_reward(read):
    (run,), _ = read("atif", json.dumps(ATIF))

    assert step_tuples(run) == [
        ("observation", "", "Count."),
        ("thought", "", "With wc."),
        ("thought", "", "I count."),
        ("tool_call", "sh", ""),
        ("observation", "sh", "3"),
    ]
    assert (run.success_source, run.input_tokens, run.duration_ms) == ("verdict", 8, 2000)
    assert (run.agent_name, run.model) == ("terminus", "a-model")

    totals = {"total_prompt_tokens": 90, "total_completion_tokens": 9}
    steps = [{**step, "metrics": None} for step in ATIF["steps"]]
    (run,), _ = read("atif", json.dumps(ATIF | {"steps": steps, "final_metrics": totals}))

    assert (run.input_tokens, run.output_tokens) == (90, 9)

    copied = [step | {"is_copied_context": True} for step in ATIF["steps"]]
    more = {"step_id": 9, "source": "agent", "message": "Three."}
    (run,), _ = read("atif", json.dumps(ATIF | {"steps": [*copied, more]}))

    assert (run.trace.task.objective, step_tuples(run)) == ("Count.", [("thought", "", "Three.")])
