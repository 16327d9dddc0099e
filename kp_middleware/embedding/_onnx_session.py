"""A session of onnxruntime whose threads sleep while they have nothing to do."""

from pathlib import Path

from onnxruntime import InferenceSession, SessionOptions


def quiet_session(model: Path | bytes, threads: int) -> InferenceSession:
    """Run a model, in a file or serialised, on the processor.

    By default, threads spin after each run, for as long as it took: the host's own work waits.

    Args:
        model: Where it is, or what it is.
        threads: For one run, the caller's among them.
    """
    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = str(model) if isinstance(model, Path) else model
    return InferenceSession(source, options, providers=["CPUExecutionProvider"])
