"""What clients may ask of LiteLLM, and the most tokens that it takes. A part of trypema_hook.py."""

import contextvars
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from litellm import token_counter
from litellm.proxy._types import ProxyException
from litellm.proxy.proxy_server import app
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The kinds of parameters, and what to tell clients about them. Others are one of several values: `type=a|b`.
KINDS = {
    "scalar": "a string, a number, a boolean or a list of these",
    "any": "anything",  # Such as JSON schemas. It is counted as text.
    "count": "a whole number above 0",
    "flag": "a boolean",
    "name": "a string",  # Not a part of the prompt.
    "object": "an object",  # Or a list of objects.
}


def table(*texts: str) -> dict[str, set[str]]:
    """Reads a table of parameters, as below. Returns the kinds of each, by its path."""
    kinds = {"": {"object"}}
    for line in "\n".join(texts).split("\n"):
        place, _, names = line.strip().rpartition(": ")
        for name in names.split():
            name, _, kind = name.partition("=")
            path = f"{place}.{name}" if place else name
            kinds.setdefault(path, set()).add(kind or "scalar")
            while "." in path:
                path = path.rpartition(".")[0]
                kinds.setdefault(path, set()).add("object")
    return kinds


# Each line has a place and the names that clients may use there.
OPENAI = """
    model=name n=count stream=flag stop temperature top_p top_k seed frequency_penalty presence_penalty
    logit_bias=any user safety_identifier prompt_cache_key prompt_cache_retention
    stream_options: include_usage=true include_obfuscation=flag
    metadata: user_id
"""
# The content of images, audio and files is missing: how many tokens they take depends on the model.
CHAT = """
    max_tokens=count max_completion_tokens=count logprobs top_logprobs reasoning_effort verbosity store
    messages: role name content tool_call_id refusal reasoning reasoning_content annotations=any
    messages.content: type text refusal thinking signature data cache_control=any
    messages.thinking_blocks: type thinking signature data cache_control=any
    messages.function_call: name arguments
    messages.tool_calls: id type index
    messages.tool_calls.function: name arguments
    messages.tool_calls.custom: name input
    messages.cache_control: type ttl
    messages.provider_specific_fields: refusal reasoning reasoning_content thought_signatures
    messages.tool_calls.provider_specific_fields: thought_signature
    messages.tool_calls.function.provider_specific_fields: thought_signature
    tools: type=function|custom cache_control=any
    tools.function: name description strict parameters=any
    tools.custom: name description format=any
    tool_choice parallel_tool_calls function_call
    tool_choice: type
    tool_choice.function: name
    tool_choice.custom: name
    functions: name description strict parameters=any
    function_call: name
    response_format: type
    response_format.json_schema: name description strict schema=any
    thinking: type budget_tokens display
"""
COMPLETION = "prompt suffix echo logprobs max_tokens=count best_of=count"
# Items without `id`, which refers to what the provider has stored.
RESPONSES = """
    instructions max_output_tokens=count include store truncation top_logprobs max_tool_calls
    input
    input: type=message|reasoning|function_call|function_call_output|custom_tool_call|custom_tool_call_output
    input: role status phase call_id name arguments input encrypted_content content output
    input.content: type text refusal annotations=any logprobs=any
    input.output: type text
    input.summary: type text
    tools: type=function|custom name description strict parameters=any format=any
    tool_choice parallel_tool_calls
    tool_choice: type name
    reasoning: effort summary generate_summary
    text: verbosity
    text.format: type name description strict schema=any
"""
MESSAGES = """
    model=name max_tokens=count stream=flag stop_sequences temperature top_p top_k system cache_control=any
    system: type text cache_control=any
    messages: role content
    messages.content: type text thinking signature data cache_control=any citations=any
    messages.content: id name input=any tool_use_id is_error content
    messages.content.content: type text cache_control=any
    tools: type=custom name description strict input_schema=any input_examples=any cache_control=any
    tool_choice: type name disable_parallel_tool_use
    thinking: type budget_tokens display
    output_config: effort
    output_config.format: type schema=any
    context_management.edits: type=clear_tool_uses_20250919|clear_thinking_20251015 trigger=any keep=any
    context_management.edits: clear_at_least=any exclude_tools clear_tool_inputs
    metadata: user_id
"""
GOOGLE = """
    model=name
    contents: role
    contents.parts: text thought thoughtSignature
    contents.parts.functionCall: id name args=any
    contents.parts.functionResponse: id name response=any
    systemInstruction: role
    systemInstruction.parts: text
    tools.functionDeclarations: name description parameters=any parametersJsonSchema=any
    tools.functionDeclarations: behavior response=any responseJsonSchema=any
    toolConfig.functionCallingConfig: mode allowedFunctionNames
    safetySettings: category threshold method
    generationConfig: maxOutputTokens=count candidateCount=count temperature topP topK seed stopSequences
    generationConfig: presencePenalty frequencyPenalty responseLogprobs logprobs
    generationConfig: responseMimeType responseSchema=any responseJsonSchema=any
    generationConfig.thinkingConfig: includeThoughts thinkingBudget thinkingLevel
"""
# The parameters that clients may send, by the type of the call.
PARAMETERS = {
    "acompletion": table(OPENAI, CHAT),
    "atext_completion": table(OPENAI, COMPLETION),
    "aresponses": table(OPENAI, RESPONSES),
    "anthropic_messages": table(MESSAGES),
    "agenerate_content": table(GOOGLE),
    "agenerate_content_stream": table(GOOGLE),
    "aembedding": table("model=name input input_type encoding_format dimensions user"),
    "aspeech": table("model=name input instructions voice response_format speed stream_format"),
    "moderation": table("model=name input", "input: type text"),
    "rerank": table("model=name query documents=any top_n return_documents rank_fields max_tokens_per_doc"),
}
# Headers that are parameters for LiteLLM begin so. Others go to the provider, if at all.
HEADER_START = "x-litellm-"
HEADERS = {
    HEADER_START + name
    for name in """
        agent-id api-key call-id customer-id end-user-id key mcp-debug model session-id spend-logs-metadata
        tags team-id trace-id user-email user-id
    """.split()
}
# The path that LiteLLM gives to chats that MCP servers ask for.
MCP_SAMPLING_PATH = "/mcp/sampling/createMessage"
# Calls that ask no language model for an answer. LiteLLM shows their usage, if they have one.
MANAGEMENT_CALL_TYPES = re.compile(
    r"a?(?:(?:cancel|delete|get|list|retrieve|update|upload)_\w+|(?:file|vector_store|video)_\w+"
    r"|create_(?:agent|container|eval|file|skill|video)|apply_guardrail|call_mcp_tool|ingest|ocr|search)"
)
# Calls whose request LiteLLM passes on as it is. Of some, it is not in `data` but in `data["data"]`.
PASS_THROUGH_CALL_TYPES = {"pass_through_endpoint", "allm_passthrough_route", "llm_passthrough_route"}
# The parameters that limit the output, by the type of the call, and the object that has Google's.
OUTPUT_LIMIT_OF = {
    "acompletion": "max_tokens",
    "atext_completion": "max_tokens",
    "aresponses": "max_output_tokens",
    "anthropic_messages": "max_tokens",
    "agenerate_content": "maxOutputTokens",
    "agenerate_content_stream": "maxOutputTokens",
}
GOOGLE_CONFIG = "generationConfig"
# More names, in requests that are estimated: of Amazon and of Google.
OUTPUT_LIMITS = {*OUTPUT_LIMIT_OF.values(), "max_completion_tokens", "maxTokens"}
OUTPUT_CONFIGS = (GOOGLE_CONFIG, "generation_config", "inferenceConfig")
CHOICES = ("n", "best_of", "candidateCount")
PROMPTS = ("messages", "tools", "prompt", "input", "contents", "system", "instructions", "systemInstruction")
# Fields of images, audio and files, whose content is not text.
MEDIA = {"data", "file_data", "image_url", "input_audio", "url"}
# LiteLLM raises smaller limits, because OpenAI's Responses API refuses them.
MIN_OUTPUT_TOKENS = 16
# What a client can ask for at most, so that the number is valid for Trypema.
MAX_ESTIMATE = 10**12
MAX_NAME_IN_ERROR = 200
# No parameter needs more: several prompts of tokens are a list of lists. Each level is a generator in another one.
MAX_LISTS = 2


@dataclass
class ClientRequest:
    """A request as the client sent it."""

    headers: set[str]
    # Empty if it is not JSON: a form may be a large file.
    body: bytearray = field(default_factory=bytearray)


client_request = contextvars.ContextVar[ClientRequest | None]("trypema_request", default=None)


class RequestKeeper:
    """Keeps requests for the hook. LiteLLM gives it the client's parameters mixed with its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # LiteLLM reads a form if a header says so, even if the body is also valid as JSON.
        is_json = all(
            value.partition(b";")[0].strip().lower() == b"application/json"
            for name, value in scope["headers"]
            if name.lower() == b"content-type"
        )
        request = ClientRequest({name.decode("latin-1").lower() for name, _ in scope["headers"]})
        client_request.set(request)

        async def receive_and_keep() -> Message:
            message = await receive()
            if is_json and message["type"] == "http.request":
                request.body += message.get("body", b"")
            return message

        await self._app(scope, receive_and_keep, send)


if app.middleware_stack is None:
    app.add_middleware(RequestKeeper)
else:
    # LiteLLM loads hooks while it starts the app.
    app.middleware_stack = RequestKeeper(app.middleware_stack)


class ParameterRefused(ProxyException):
    """A parameter that clients may not send. LiteLLM answers with an error in OpenAI's format."""

    # Some routes of LiteLLM read this instead of `code`.
    status_code = 400

    def __init__(self, name: str, problem: str) -> None:
        # Clients choose names.
        name = name[:MAX_NAME_IN_ERROR]
        super().__init__(f"{name}: {problem}", "invalid_request_error", name, self.status_code)


def unknown(name: str) -> ParameterRefused:
    return ParameterRefused(
        name,
        "this parameter is disabled, because a call could use more tokens with it than are reserved;"
        " the operator can allow it with TRYPEMA_ALLOWED_PARAMETERS",
    )


@dataclass(frozen=True)
class Estimate:
    """The most tokens that a call may use."""

    prompt: int
    # Of one attempt at one model.
    attempt: int
    # Of all models that the request names.
    tokens: int
    # How many answers each model gives.
    answers: int


class Estimator:
    """Checks the parameters of requests, and estimates their tokens."""

    def __init__(self, default_output_tokens: int, allowed: frozenset[str]) -> None:
        self._default_output_tokens = default_output_tokens
        self._allowed = allowed

    def estimate(self, data: dict[str, Any], call_type: str) -> Estimate:
        """Returns the most tokens that a call may use. Sets a limit for the output if the request has none.

        Raises `ParameterRefused` if the request has a parameter that is not known.
        """
        if known := PARAMETERS.get(call_type):
            prompt = self._count_prompt(data, known)
        elif call_type in PASS_THROUGH_CALL_TYPES:
            prompt = count(leaves(data))
        else:
            prompt = count(leaves([data.get(name) for name in PROMPTS]))
        answers = 0
        attempt = prompt
        if not is_measured(call_type) or call_type in OUTPUT_LIMIT_OF:
            limit, answers = self._limit_output(data, call_type)
            attempt += limit * answers
        # `model: "a,b"` asks both.
        models = str(data.get("model")).count(",") + 1
        return Estimate(prompt, attempt, min(attempt * models, MAX_ESTIMATE), answers)

    def _count_prompt(self, data: Mapping[str, Any], known: Mapping[str, set[str]]) -> int:
        """Counts the tokens of a prompt with the tokenizer that comes with LiteLLM.

        The model's own tokenizer might be downloaded in the middle of a request. The difference is
        settled with the usage of the response.
        """
        parameters = self._client_parameters(data, known)
        messages = {name: parameters.pop(name) for name in ("messages",) if name in parameters}
        in_messages = count(self._checked("", messages, known))
        if messages:
            try:
                # Counts also the tokens between messages, and images, if the operator allows them.
                framed = token_counter(messages=data["messages"], use_default_image_token_count=True)
                in_messages = max(in_messages, framed)
            except Exception:  # Content that the counter does not know.
                pass
        return in_messages + count(self._checked("", parameters, known))

    def _client_parameters(self, data: Mapping[str, Any], known: Mapping[str, set[str]]) -> dict[str, Any]:
        request = client_request.get()
        if request is None:
            raise RuntimeError("the hook has not seen the request: this version of LiteLLM is not supported")
        for name in sorted(request.headers):
            if name.startswith(HEADER_START) and name not in HEADERS | self._allowed:
                raise unknown(name)
        made_by_litellm = data.get("proxy_server_request") or {}
        if urlsplit(made_by_litellm.get("url") or "").path == MCP_SAMPLING_PATH:
            # LiteLLM chose the names, and the MCP server the values.
            body = made_by_litellm["body"]
            return {name: value for name, value in body.items() if name in known and name != "metadata"}
        try:
            parameters = json.loads(request.body)
        except (ValueError, RecursionError):
            parameters = None
        if not isinstance(parameters, dict):
            raise ParameterRefused("body", "has to be a JSON object with the content type application/json")
        return parameters

    def _checked(
        self, path: str, value: Any, known: Mapping[str, set[str]], lists: int = 0
    ) -> Iterator[str | int]:
        """Yields the texts of a parameter and its numbers. Raises if it is not one that is known.

        The value is inside so many lists of the parameter.
        """
        kinds = known[path]
        if value is None:
            return
        if isinstance(value, dict) and "object" in kinds:
            for name, content in value.items():
                place = f"{path}.{name}" if path else name
                if place in self._allowed:
                    continue
                if place in known and name.isidentifier():
                    yield from self._checked(place, content, known)
                # Clients send back answers, with nulls. At the top, LiteLLM obeys some nulls.
                elif content is not None or not path:
                    raise unknown(place)
        elif "any" in kinds:
            yield json.dumps(value, ensure_ascii=False, default=str)
        elif isinstance(value, list) and not kinds.isdisjoint(("scalar", "object")):
            if lists == MAX_LISTS:
                raise ParameterRefused(path, f"has lists nested deeper than {MAX_LISTS}")
            for item in value:
                if isinstance(item, list) and "scalar" not in kinds:
                    raise ParameterRefused(path, "has to be a list of objects")
                yield from self._checked(path, item, known, lists + 1)
        elif isinstance(value, (str, int, float)) and "scalar" in kinds:
            if not isinstance(value, float):
                yield value
        elif not (
            ("count" in kinds and type(value) is int and value > 0)
            or ("flag" in kinds and isinstance(value, bool))
            or ("name" in kinds and isinstance(value, str))
        ):
            if kinds <= KINDS.keys():
                expected = " or ".join(KINDS[kind] for kind in sorted(kinds))
                raise ParameterRefused(path, f"has to be {expected}")
            text = value if isinstance(value, str) else json.dumps(value)
            if text not in "|".join(kinds).split("|") and f"{path}={text}" not in self._allowed:
                raise unknown(f"{path}={text}")

    def _limit_output(self, data: dict[str, Any], call_type: str) -> tuple[int, int]:
        """Returns the most tokens of each answer, and how many answers the model generates."""
        body = data
        if call_type in PASS_THROUGH_CALL_TYPES and isinstance(data.get("data"), Mapping):
            body = data["data"]
        places = [body, *(body[name] for name in OUTPUT_CONFIGS if isinstance(body.get(name), Mapping))]
        limit = largest(places, OUTPUT_LIMITS)
        if limit is None:
            limit = self._default_output_tokens
            name = OUTPUT_LIMIT_OF.get(call_type)
            if name == "maxOutputTokens":
                data[GOOGLE_CONFIG] = {**(data.get(GOOGLE_CONFIG) or {}), name: limit}
            elif name is not None:
                data[name] = limit
        answers = largest(places, CHOICES) or 1
        prompts = body.get("prompt")
        # A list of token ids is one prompt.
        if isinstance(prompts, list) and not all(isinstance(prompt, int) for prompt in prompts):
            answers *= len(prompts)
        return max(limit, MIN_OUTPUT_TOKENS), answers


def is_measured(call_type: str) -> bool:
    """Whether the tokens of these calls can be limited exactly. Calls of later versions of LiteLLM cannot."""
    return call_type in PARAMETERS or MANAGEMENT_CALL_TYPES.fullmatch(call_type) is not None


def largest(places: Iterable[Mapping[str, Any]], names: Iterable[str]) -> int | None:
    """Returns the largest number that has one of these names: the provider decides which of them counts."""
    numbers = [whole_number(place.get(name)) for place in places for name in names]
    return max((number for number in numbers if number is not None), default=None)


def whole_number(value: Any) -> int | None:
    """Returns a positive number of a request. Clients may write anything there."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number > 0 else None


def count(values: Iterable[str | int]) -> int:
    """Counts the tokens of texts, and of numbers, which are token ids."""
    texts, token_ids = [], 0
    for value in values:
        if isinstance(value, str):
            texts.append(value)
        else:
            token_ids += 1
    return token_ids + count_text("\n".join(texts))


def count_text(text: str) -> int:
    return token_counter(text=text) if text else 0


def leaves(value: Any) -> Iterator[str | int]:
    """Yields the texts of a JSON value and its numbers, which are token ids in a prompt."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            pending.extend(content for name, content in value.items() if name not in MEDIA)
        elif isinstance(value, (list, tuple)):
            pending.extend(value)
        elif isinstance(value, (str, int)) and not isinstance(value, bool):
            yield value
