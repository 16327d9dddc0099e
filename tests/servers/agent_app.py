"""One agent behind gunicorn, as WSGI, and behind Celery, as a task. Run by child processes only."""

import os
import time
from pathlib import Path

from kp_middleware import KnowledgePulse, current_trace

kp = KnowledgePulse(embedder=None, threshold=0)


@kp.capture
def answer(question):
    current_trace().thought(f"I know {question}")
    return "42"


def wsgi(request, respond):
    body = answer(request["PATH_INFO"].strip("/")).encode()
    respond("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def celery():
    """The application, whose broker is a folder."""
    from celery import Celery

    folder = Path(os.environ["BROKER"])
    app = Celery("agents", broker="filesystem://")
    app.conf.task_ignore_result = True
    app.conf.broker_transport_options = {
        "data_folder_in": str(folder),
        "data_folder_out": str(folder),
    }
    app.task(answer, name="answer")
    return app


app = celery() if "BROKER" in os.environ else None


def ask(question):
    time.sleep(0.2)  # so that children live for seconds
    app.send_task("answer", [question])
