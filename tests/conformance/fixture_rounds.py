"""Tools of the modern era that ask back: what each round asks for, and the answer once everything is known."""

from collections.abc import Callable, Mapping
from typing import Any

from mcp import types

from tests.conformance.fixture_content import said

Answered = Mapping[str, Any]
Result = types.CallToolResult | types.InputRequiredResult


def ask_user(question: str, key: str, kind: str = "string") -> types.ElicitRequest:
    schema = {"type": "object", "properties": {key: {"type": kind}}, "required": [key]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=question, requested_schema=schema))


def ask_model(question: str, most: int) -> types.CreateMessageRequest:
    content = types.TextContent(type="text", text=question)
    message = types.SamplingMessage(role="user", content=content)
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=most))


def ask_roots() -> types.ListRootsRequest:
    return types.ListRootsRequest(params=types.RequestParams())


def form_value(answered: Answered, name: str, key: str) -> Any:
    """What the user filled in; None unless the form was accepted with that field."""
    answer = answered.get(name)
    if not isinstance(answer, types.ElicitResult) or answer.action != "accept" or not answer.content:
        return None
    return answer.content.get(key)


def _elicitation(answered: Answered, _: str | None) -> Result:
    name = form_value(answered, "user_name", "name")
    if not isinstance(name, str):
        return types.InputRequiredResult(input_requests={"user_name": ask_user("What is your name?", "name")})
    return said(f"Hello, {name}!")


def _sampling(answered: Answered, _: str | None) -> Result:
    answer = answered.get("capital_question")
    if not isinstance(answer, types.CreateMessageResult):
        question = ask_model("What is the capital of France?", 100)
        return types.InputRequiredResult(input_requests={"capital_question": question})
    return said(f"The model says: {getattr(answer.content, 'text', '')}")


def _list_roots(answered: Answered, _: str | None) -> Result:
    answer = answered.get("client_roots")
    if not isinstance(answer, types.ListRootsResult):
        return types.InputRequiredResult(input_requests={"client_roots": ask_roots()})
    return said("Roots: " + ", ".join(str(root.uri) for root in answer.roots))


def _request_state(answered: Answered, state: str | None) -> Result:
    if form_value(answered, "confirm", "ok") is None or state != "asked":
        question = ask_user("Please confirm", "ok", "boolean")
        return types.InputRequiredResult(input_requests={"confirm": question}, request_state="asked")
    return said("state-ok")


def _multiple_inputs(answered: Answered, _: str | None) -> Result:
    if not {"user_name", "greeting", "client_roots"} <= answered.keys():
        requests = {
            "user_name": ask_user("What is your name?", "name"),
            "greeting": ask_model("Generate a greeting", 50),
            "client_roots": ask_roots(),
        }
        return types.InputRequiredResult(input_requests=requests, request_state="asked three")
    return said("All three arrived.")


def _multi_round(answered: Answered, state: str | None) -> Result:
    name, colour = form_value(answered, "step1", "name"), form_value(answered, "step2", "color")
    if state is not None and state.startswith("round 2: ") and colour is not None:
        return said(f"{state.removeprefix('round 2: ')} likes {colour}.")
    if state == "round 1" and name is not None:
        question = ask_user("Step 2: What is your favorite color?", "color")
        return types.InputRequiredResult(input_requests={"step2": question}, request_state=f"round 2: {name}")
    question = ask_user("Step 1: What is your name?", "name")
    return types.InputRequiredResult(input_requests={"step1": question}, request_state="round 1")


ROUNDS: dict[str, Callable[[Answered, str | None], Result]] = {
    "test_input_required_result_elicitation": _elicitation,
    "test_input_required_result_sampling": _sampling,
    "test_input_required_result_list_roots": _list_roots,
    "test_input_required_result_request_state": _request_state,
    "test_input_required_result_tampered_state": _request_state,
    "test_input_required_result_multiple_inputs": _multiple_inputs,
    "test_input_required_result_multi_round": _multi_round,
    "test_streaming_elicitation": _elicitation,
}
"""Each gets what was answered so far and its own state."""


def capable_round(capabilities: types.ClientCapabilities | None) -> types.InputRequiredResult:
    """Asks only for what the client says it can give."""
    requests: types.InputRequests = {}
    if capabilities is not None and capabilities.sampling is not None:
        requests["question"] = ask_model("What is the capital of France?", 100)
    if capabilities is not None and capabilities.elicitation is not None:
        requests["user_name"] = ask_user("What is your name?", "name")
    return types.InputRequiredResult(input_requests=requests or None, request_state="asked")


def prompt_round(answered: Answered) -> types.GetPromptResult | types.InputRequiredResult:
    context = form_value(answered, "user_context", "context")
    if context is None:
        question = ask_user("What context should the prompt use?", "context")
        return types.InputRequiredResult(input_requests={"user_context": question})
    content = types.TextContent(type="text", text=f"Context: {context}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])
