"""The addresses of our pages, below the overview."""

PAGES = {
    "overview": "",
    "gate": "/what-if",
    "trace": "/traces/@best",
    "runs": "/runs?q=order",
    "review": "/review",
    "compare": "/compare?left=@best&right=@last",
    "equal": "/compare?left=@best&right=@best",
    "conversation": "/conversations/case-7",
    "not found": "/traces/none",
}
