-- Version 6: the uses of a tool in the order of traces: how many traces used it is told without sorting.
DROP INDEX steps_tool;
CREATE INDEX steps_tool ON steps(tool, type, trace_seq, latency_ms) WHERE tool IS NOT NULL;   -- covering: tool usage reads the index alone
