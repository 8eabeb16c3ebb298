"""An MCP server on standard input and output that does what bridges have to cope with. Standard library only."""

import json
import os
import signal
import sys
import threading
import time

TOOLS = [
    "echo",
    "slow",
    "progress",
    "ask",
    "log",
    "crash",
    "spam",
    "pid",
    "env",
    "grow",
    "noise",
    "sent",
    "blob",
    "touch",
]
sent: list = []
lock = threading.Lock()


def say(message) -> None:
    with lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def tell(method, **params) -> None:
    say({"jsonrpc": "2.0", "method": method, "params": params})


def text(value) -> dict:
    return {"content": [{"type": "text", "text": value}]}


waiting: dict = {}
cancelled: list = []
answers: list = []


def call(request_id, params) -> None:
    name, given = params["name"], params.get("arguments", {})
    token = params.get("_meta", {}).get("progressToken")
    if name == "echo":
        result = text(json.dumps(given))
    elif name == "slow":
        waiting[request_id] = threading.Event()
        finished = waiting[request_id].wait(given.get("seconds", 30))
        if finished:
            return
        result = text("slept")
    elif name == "progress":
        for step in range(given.get("steps", 3)):
            tell("notifications/progress", progressToken=token, progress=step, total=3)
        result = text("done")
    elif name == "ask":
        method = given.get("method", "sampling/createMessage")
        say({"jsonrpc": "2.0", "id": "server-1", "method": method, "params": {"n": 1}})
        while not answers:
            time.sleep(0.01)
        result = text(json.dumps(answers.pop()))
    elif name == "log":
        tell("notifications/message", level="info", data=given.get("data"))
        result = text("logged")
    elif name == "crash":
        sys.stderr.write("it hurts\n")
        sys.stderr.flush()
        os._exit(7)
    elif name == "spam":
        for number in range(given["lines"]):
            sys.stderr.write(f"line {number} " + "x" * given.get("size", 10) + "\n")
        sys.stderr.flush()
        result = text("spammed")
    elif name == "pid":
        result = text(str(os.getpid()))
    elif name == "env":
        result = text(json.dumps(dict(os.environ)))
    elif name == "grow":
        tell("notifications/tools/list_changed")
        result = text("grown")
    elif name == "touch":
        tell("notifications/resources/updated", uri=given["uri"])
        result = text("touched")
    elif name == "noise":
        sys.stdout.write("Welcome to my server!\n\n{broken\n")
        result = text("noisy")
    elif name == "sent":
        result = text(json.dumps(sent))
    elif name == "blob":
        result = text("y" * given["size"])
    else:
        say({"jsonrpc": "2.0", "id": request_id, "error": {"code": -32602, "message": f"Unknown tool: {name}"}})
        return
    say({"jsonrpc": "2.0", "id": request_id, "result": result})


def main() -> None:
    if "ignore-term" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "die" in sys.argv:
        sys.exit("no license found")
    for line in sys.stdin:
        message = json.loads(line)
        sent.append(message)
        method, request_id, params = message.get("method"), message.get("id"), message.get("params", {})
        if method is None:
            answers.append(message)
        elif method == "initialize":
            capabilities = {
                "tools": {"listChanged": True},
                "resources": {"subscribe": True, "listChanged": True},
                "logging": {},
            }
            info = {"name": "lines", "version": "1", "title": "Lines"}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            say({"jsonrpc": "2.0", "id": request_id, "result": {**result, "instructions": "be kind"}})
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            say({"jsonrpc": "2.0", "id": request_id, "result": {"tools": tools}})
        elif method in ("ping", "resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
            say({"jsonrpc": "2.0", "id": request_id, "result": {}})
        elif method == "resources/read":
            say({"jsonrpc": "2.0", "id": request_id, "error": {"code": -32002, "message": "Resource not found"}})
        elif method == "tools/call":
            threading.Thread(target=call, args=(request_id, params), daemon=True).start()
        elif method == "notifications/cancelled":
            cancelled.append(params["requestId"])
            if params["requestId"] in waiting:
                waiting[params["requestId"]].set()
        elif request_id is not None:
            say({"jsonrpc": "2.0", "id": request_id, "error": {"code": -32601, "message": f"no {method}"}})
    if "linger" in sys.argv:
        time.sleep(60)


main()
