"""Limits the tokens of LiteLLM's proxy with Trypema: reserves before a call, settles after it.

Put this file and trypema_request.py beside LiteLLM's config.yaml, and name it there:

    litellm_settings:
      callbacks: trypema_hook.trypema_hook

Before a call, the hook reserves the tokens of the prompt and the most tokens that the model may
generate. If Trypema denies this, the client gets 429 with Retry-After. After the call, the hook
settles the tokens that were used, and Trypema gives the rest back:

- A call that succeeded settles the usage of its response.
- A call that failed, after all retries and fallbacks, is released: everything is given back.
- Each attempt that timed out settles its estimate, in addition to what a later attempt used. The
  model may have generated everything, and clients may choose timeouts and retries.
- A stream that its client left, or that broke, settles the prompt and the text that was sent.
- A response from LiteLLM's cache settles 0 tokens.
- If nothing is known, the estimate is settled: for example, with `cancel_on_disconnect`, when the
  client left before the response.
- If Trypema's answer to a reservation is lost, the call is not sent, and what it may have reserved is
  released by the id that the hook chose.

Clients may only send the parameters that trypema_request.py lists, at every depth, because a call
cannot use more than its estimate with them. Others are refused with 400, unless
TRYPEMA_ALLOWED_PARAMETERS has them: `extra_body`, `num_retries`, images, tools that the provider runs, ...

Some calls cannot be limited exactly, because LiteLLM does not show the hook their whole request or all of
their usage, or because the request does not bound it: pass-through routes (/openai/*, /anthropic/*, ...),
websockets and realtime sessions, batches and fine-tuning, images and transcriptions. They are refused with
403, unless TRYPEMA_UNMEASURED_CALLS allows them.

Settings, as environment variables:

    TRYPEMA_URL                    address of the check listener (http://127.0.0.1:8080)
    TRYPEMA_CALLER_TOKEN           the server's caller token, if it needs one
    TRYPEMA_CALLER_TOKEN_FILE      a file with that token, instead
    TRYPEMA_ON_FAILURE             while Trypema does not answer: fail_closed refuses calls with 503,
                                   fail_open lets them pass uncounted (fail_closed). If Trypema answers
                                   with 4xx, calls get 500 in any case
    TRYPEMA_TIMEOUT_SECONDS        how long one request to Trypema may take (1)
    TRYPEMA_RESERVATION_SECONDS    after this time Trypema forgets a reservation whose proxy has died,
                                   and keeps its estimate counted; a running call is renewed in time
                                   (60, at most 3600)
    TRYPEMA_DEFAULT_OUTPUT_TOKENS  the max_tokens of a request that has none (1000)
    TRYPEMA_ALLOWED_PARAMETERS     more parameters that clients may send, with commas between them:
                                   `metadata`, `messages.content.image_url`, `tools.type=web_search`,
                                   `x-litellm-timeout`; what is inside them is neither checked nor
                                   counted (none)
    TRYPEMA_UNMEASURED_CALLS       calls that cannot be limited exactly: refuse, estimate (reserve an
                                   estimate, and keep it unless LiteLLM reports the usage), or
                                   uncounted (refuse)

Rules can use these attributes: `api_key` (the hash of a virtual key, never the key), `user`, `team`,
`end_user` and `model`. Requests have the costs `tokens` and `requests` (1).
"""

import asyncio
import contextvars
import json
import logging
import math
import os
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import httpx
from litellm import Timeout
from litellm.caching.caching import DualCache
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy._types import ProxyException, UserAPIKeyAuth, hash_token

# LiteLLM loads this file by its path.
sys.path.append(str(Path(__file__).parent))

from trypema_request import MAX_ESTIMATE, Estimate, Estimator, count_text, is_measured, leaves  # noqa: E402

logger = logging.getLogger("trypema")

# Calls that use tokens after the hook has seen their request: in messages of a session, or in a job.
SESSION_CALL_TYPES = {
    "_arealtime",
    "_aresponses_websocket",
    "acreate_batch",
    "acreate_fine_tuning_job",
    "acreate_realtime_client_secret",
    "acreate_realtime_transcription_session",
    "acreate_run",
    "arealtime_calls",
    "create_batch",
    "create_fine_tuning_job",
}
# LiteLLM chooses the ids of these calls after the hook: of chats for MCP servers, and of old routes.
CALL_TYPES_WITHOUT_ID = {
    "acompletion",
    "aspeech",
    "image_generation",
    "moderation",
    "rerank",
    "transcription",
}
# LiteLLM's status for a client that left, if `cancel_on_disconnect` is set.
CLIENT_LEFT = 499
# LiteLLM logs a success in the background. After this time the hook settles what it knows.
LOG_SECONDS = 5.0
PAUSES_BEFORE_NEXT_ATTEMPT = (1.0, 5.0, 20.0, None)
ONE_ATTEMPT = (None,)
# Redis did not answer, now or when the reservation was made: then another server keeps it for a while.
REPEATED_STATUSES = {"failed", "not_yet_known"}
TWO_ATTEMPTS = (0.5, None)
# OpenAI's clients wait for at most this time before they repeat a request.
MAX_RETRY_SECONDS = 60
# The most reservations without an answer that are released at a time: each takes some kilobytes, and four
# requests in half a minute. A failure of the network may lose the answers of all calls.
MAX_LOST_RESERVATIONS = 1_000


@dataclass(frozen=True)
class Settings:
    url: str
    caller_token: str | None
    on_failure: str  # fail_closed or fail_open
    timeout_seconds: float
    reservation_seconds: int
    default_output_tokens: int
    allowed_parameters: frozenset[str]
    unmeasured_calls: str  # refuse, estimate or uncounted

    @classmethod
    def from_environment(cls) -> "Settings":
        token_file = os.environ.get("TRYPEMA_CALLER_TOKEN_FILE")
        token = Path(token_file).read_text().strip() if token_file else os.environ.get("TRYPEMA_CALLER_TOKEN")
        return cls(
            url=os.environ.get("TRYPEMA_URL", "http://127.0.0.1:8080").rstrip("/"),
            caller_token=token or None,
            on_failure=one_of("TRYPEMA_ON_FAILURE", "fail_closed", "fail_open"),
            timeout_seconds=positive("TRYPEMA_TIMEOUT_SECONDS", "1"),
            reservation_seconds=math.ceil(positive("TRYPEMA_RESERVATION_SECONDS", "60")),
            default_output_tokens=math.ceil(positive("TRYPEMA_DEFAULT_OUTPUT_TOKENS", "1000")),
            allowed_parameters=frozenset(
                os.environ.get("TRYPEMA_ALLOWED_PARAMETERS", "").replace(",", " ").split()
            ),
            unmeasured_calls=one_of("TRYPEMA_UNMEASURED_CALLS", "refuse", "estimate", "uncounted"),
        )


def one_of(name: str, *values: str) -> str:
    """Returns a setting that has one of these values. The first is the default."""
    value = os.environ.get(name, values[0])
    if value not in values:
        raise ValueError(f"{name}: need {' or '.join(values)}, not {value!r}")
    return value


def positive(name: str, default: str) -> float:
    text = os.environ.get(name, default)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"{name}: need a number above 0, not {text!r}")
    return number


class TrypemaUnavailable(Exception):
    """Trypema did not answer, or could not decide."""


class TrypemaRefused(Exception):
    """Trypema rejects the hook's requests (4xx): the token, the address or the rules do not match."""

    def __init__(self, path: str, status: int, answer: str) -> None:
        super().__init__(f"{path}: {status}: {answer[:200]}")
        # Trypema answers wrong tokens with 401, and with 429 if there are many.
        if status in (401, 403, 429):
            self.advice = "set TRYPEMA_CALLER_TOKEN or TRYPEMA_CALLER_TOKEN_FILE to the server's caller_token"
        else:
            self.advice = "TRYPEMA_URL must name its check listener, and the rules have to declare `tokens`"


@dataclass(frozen=True)
class Answer:
    status: int
    content_type: str
    text: str


class TrypemaClient:
    """Sends requests to Trypema over one pool of connections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self, path: str, body: Mapping[str, Any], note_lost: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Returns Trypema's answer. Calls `note_lost` if Trypema may have done what was asked without one."""
        try:
            try:
                answer = await self._post_once(path, body)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                # An idle connection that the server has closed. If the server did get the request, the `id`
                # tells it that this is the same reservation.
                if may_have_arrived(error):
                    note_lost()
                answer = await self._post_once(path, body)
        except (aiohttp.ClientError, TimeoutError, asyncio.TimeoutError) as error:
            if may_have_arrived(error):
                note_lost()
            raise TrypemaUnavailable(f"{path}: {str(error) or type(error).__name__}") from error
        # A denial is a 200 with `allowed: false`, so a 429 is about the hook, not about the caller.
        if 400 <= answer.status < 500:
            raise TrypemaRefused(path, answer.status, answer.text)
        try:
            decoded = json.loads(answer.text)
        except ValueError:
            decoded = None
        if answer.status != 200 or not isinstance(decoded, dict):
            # Trypema itself undoes what it may have reserved if its store fails. Other answers are those of a
            # proxy before it.
            if answer.content_type != "application/problem+json":
                note_lost()
            raise TrypemaUnavailable(f"{path}: {answer.status}: {answer.text[:200]}")
        return decoded

    async def _post_once(self, path: str, body: Mapping[str, Any]) -> Answer:
        async with self._connections().post(self._settings.url + path, json=body) as response:
            text = (await response.read()).decode(errors="replace")
            return Answer(response.status, response.content_type, text)

    def _connections(self) -> aiohttp.ClientSession:
        # Not in the constructor: a session belongs to the running event loop.
        if self._session is None:
            token = self._settings.caller_token
            self._session = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {token}"} if token else {},
                timeout=aiohttp.ClientTimeout(total=self._settings.timeout_seconds),
            )
        return self._session


def may_have_arrived(error: Exception) -> bool:
    """Whether Trypema may have got a request that failed so."""
    return not isinstance(error, aiohttp.ClientConnectorError)


@dataclass(eq=False)
class Call:
    """A call that reserves tokens. LiteLLM's hooks only write down here what they see of it."""

    call_id: str | None
    call_type: str
    request: asyncio.Task[Any]
    # The fields of a request to Trypema that name the reservation: the id and the attributes of the request
    # that makes it, and Trypema's own name for it once that is known.
    reservation: Mapping[str, Any]
    # How long the reservation lasts without being renewed.
    lasts_seconds: float
    estimate: Estimate
    # Whether hooks do not see the whole usage.
    keeps_estimate: bool
    # Trypema's answer to the request to reserve, or why there is none.
    answer: dict[str, Any] | None = None
    error: Exception | None = None
    # Set when one of them is known.
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    # Whether the request may have reserved, or may do so later, and only its id names the reservation.
    is_lost: bool = False
    # The largest usage that a hook has seen. Several hooks see the same response.
    used: int | None = None
    # What a stream has sent so far, or None if the response is not a stream.
    chunks: list[Any] | None = None
    is_streaming: bool = False
    timeouts: int = 0
    # Whether a hook has seen that a model was asked.
    was_asked: bool = False
    failed: bool = False
    from_cache: bool = False
    end_was_sent: bool = False
    # Set when no hook will report more than what is known now.
    reported: asyncio.Event = field(default_factory=asyncio.Event)
    # Set when the request has ended, or another reservation replaces this one.
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    watcher: asyncio.Task[None] | None = None

    def note_end(self) -> None:
        # With LiteLLM's keepalives, a stream outlives the task that has begun it.
        if self.request.done() and not self.is_streaming:
            self.ended.set()

    def note_lost(self) -> None:
        self.is_lost = True

    def note_unused(self) -> None:
        self.failed = True
        self.reported.set()
        self.ended.set()

    def note_usage(self, used: int | None) -> None:
        if used is not None:
            self.used = max(used, self.used or 0)

    def tokens_to_settle(self) -> int:
        """Returns the tokens to settle. If they are 0 for a failed call, it can be released."""
        if self.keeps_estimate and not self.failed:
            return self.estimate.tokens
        return min(self.timeouts * self.estimate.attempt + self._tokens_of_response(), MAX_ESTIMATE)

    def _tokens_of_response(self) -> int:
        if self.from_cache:
            return 0
        if self.used is not None:
            return self.used
        if self.chunks or (self.chunks is not None and not self.failed):
            return self.estimate.prompt + count_text("".join(generated_texts(self.chunks)))
        if self.failed:
            return 0
        logger.info("the usage of call %s is unknown; its estimate is settled", self.call_id)
        return self.estimate.tokens


# A variable of the context, not a dictionary by call id: clients may choose the call id
# (`x-litellm-call-id`), and could release the reservation of another call.
current_call: contextvars.ContextVar[Call | None] = contextvars.ContextVar("trypema_call", default=None)


def call_of(fields: Mapping[str, Any]) -> Call | None:
    """Returns the call that a hook is about, or None if it has no reservation.

    Calls that a guardrail makes while it handles a request inherit the request's context, but have
    another call id.
    """
    call = current_call.get()
    return call if call is not None and call.call_id == call_id_of(fields) else None


def call_id_of(fields: Mapping[str, Any]) -> str | None:
    # The fields of a pass-through request are its body: they have no id, or one that the client made up.
    logging_object = fields.get("litellm_logging_obj")
    return getattr(logging_object, "litellm_call_id", None) or fields.get("litellm_call_id")


class TrypemaHook(CustomLogger):
    """Reserves tokens before a call, and settles the used ones after it.

    The hooks of LiteLLM may run several times for one call, in varying order, or not at all:
    `async_log_failure_event` runs for an attempt that a fallback then replaces, and no hook runs for
    a client that leaves before the first chunk. So the hooks only note what they see. A task for each
    call, which waits for the end of the HTTP request, settles exactly once.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._trypema = TrypemaClient(settings)
        self._estimator = Estimator(settings.default_output_tokens, settings.allowed_parameters)
        # The event loop keeps only weak references to tasks.
        self._watchers: set[asyncio.Task[None]] = set()
        # The number of reservations without an answer that are being released.
        self._lost = 0
        self._is_unavailable = False
        self._refused_call_types: set[str] = set()

    async def async_pre_call_hook(
        self, user_api_key_dict: UserAPIKeyAuth, cache: DualCache, data: dict[str, Any], call_type: str
    ) -> None:
        if not is_measured(call_type):
            if self._settings.unmeasured_calls == "refuse":
                raise self._refusal(call_type)
            if self._settings.unmeasured_calls == "uncounted":
                return
        if call_type in CALL_TYPES_WITHOUT_ID:
            data.setdefault("litellm_call_id", str(uuid.uuid4()))
        request = asyncio.current_task()
        assert request is not None
        earlier = current_call.get()
        if earlier is not None and earlier.request is request:
            if earlier is call_of(data):
                return
            # LiteLLM falls back to another model, because another hook has denied this one. A session of
            # MCP calls several tools in one task.
            if earlier.call_type == call_type != "call_mcp_tool" and not earlier.was_asked:
                await self._release_unused(earlier)
        estimate = await asyncio.to_thread(self._estimator.estimate, data, call_type)
        call = Call(
            call_id=call_id_of(data),
            call_type=call_type,
            request=request,
            # Nobody else knows the id: a caller that does can release the reservation.
            reservation={"id": str(uuid.uuid4()), "attributes": attributes_of(user_api_key_dict, data)},
            lasts_seconds=float(self._settings.reservation_seconds),
            estimate=estimate,
            # LiteLLM may count one of several streamed answers. With `fastest_response`, it cancels the
            # slower models, which have used tokens, too.
            keeps_estimate=call_type in SESSION_CALL_TYPES
            or bool(data.get("stream") and estimate.answers > 1)
            or bool(data.get("fastest_response") and estimate.tokens > estimate.attempt),
        )
        answer = await self._reserve(call)
        if answer is None:
            return
        if not answer.get("allowed"):
            raise denial(answer)
        if answer.get("reservation"):
            current_call.set(call)
            request.add_done_callback(lambda _: call.note_end())

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> None:
        # A guardrail may still reject this response, but its tokens are used.
        if call := call_of(request_data):
            call.was_asked = True
            call.note_usage(usage_of(response))

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any
    ) -> None:
        # Runs for every attempt.
        if call := call_of(request_data):
            call.was_asked = True
            call.timeouts += is_timeout(exception)

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: UserAPIKeyAuth, response: Any
    ) -> None:
        if call := call_of(data):
            call.note_usage(usage_of(response))

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: UserAPIKeyAuth, response: AsyncIterator[Any], request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        call = call_of(request_data)
        if call is not None and call.chunks is None:
            call.was_asked = call.is_streaming = True
            call.chunks = []
        try:
            async for chunk in response:
                if call is not None and call.chunks is not None:
                    call.chunks.append(chunk)
                yield chunk
                if call is not None:
                    # Another task may go on with the stream, and LiteLLM logs its end in that context.
                    current_call.set(call)
        except (asyncio.CancelledError, GeneratorExit):
            # The client left. Only for some routes LiteLLM logs a success with the partial response.
            if call is not None:
                call.reported.set()
            raise
        finally:
            if call is not None:
                call.is_streaming = False
                call.note_end()

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        if call := call_of(kwargs):
            call.was_asked = True
            call.from_cache = bool(kwargs.get("cache_hit"))
            call.note_usage(usage_of(response_obj))
            call.reported.set()

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: UserAPIKeyAuth,
        traceback_str: str | None = None,
    ) -> None:
        # Not `async_log_failure_event`: that runs after the first attempt, before retries and fallbacks.
        if call := call_of(request_data):
            call.failed = getattr(original_exception, "status_code", None) != CLIENT_LEFT
            # A stream that times out before its first chunk, for which no other hook runs.
            if is_timeout(original_exception) and not call.chunks:
                call.timeouts = max(call.timeouts, 1)
            call.reported.set()

    def _refusal(self, call_type: str) -> CallRefused:
        if call_type not in self._refused_call_types:
            self._refused_call_types.add(call_type)
            logger.warning(
                "refusing calls of type %s, whose tokens cannot be limited exactly; TRYPEMA_UNMEASURED_CALLS"
                " (estimate or uncounted) allows them",
                call_type,
            )
        message = (
            "this route is disabled, because its tokens cannot be limited exactly;"
            " the operator can allow it with TRYPEMA_UNMEASURED_CALLS"
        )
        return CallRefused(403, "permission_error", message)

    async def _reserve(self, call: Call) -> dict[str, Any] | None:
        """Returns Trypema's answer, or None if the call passes uncounted."""
        # The task of the request may be cancelled while it waits.
        call.watcher = asyncio.create_task(self._watch(call))
        self._watchers.add(call.watcher)
        call.watcher.add_done_callback(self._watchers.discard)
        try:
            await call.answered.wait()
        except asyncio.CancelledError:
            call.note_unused()
            raise
        try:
            if call.error is not None:
                raise call.error
        except TrypemaRefused as error:
            # Never fail_open: what the request says may have caused this.
            logger.error(
                "Trypema refused a reservation (%s); the call gets 500, whatever TRYPEMA_ON_FAILURE is; %s",
                error,
                error.advice,
            )
            message = "the limits could not be checked; the operator has to look into the log"
            raise CallRefused(500, "server_error", message) from None
        except TrypemaUnavailable as error:
            policy = self._settings.on_failure
            if not self._is_unavailable:
                logger.error("Trypema is unavailable (%s); applying %s until it answers", error, policy)
            self._is_unavailable = True
            if policy == "fail_open":
                return None
            raise unavailable("the limits cannot be checked now; try again in 1 s") from None
        if self._is_unavailable:
            logger.warning("Trypema answers again; calls are counted")
        self._is_unavailable = False
        return call.answer

    async def _release_unused(self, call: Call) -> None:
        call.note_unused()
        if call.watcher is not None:
            # So that the next reservation finds these tokens. The watcher repeats if Trypema does not answer.
            await asyncio.wait({call.watcher}, timeout=self._settings.timeout_seconds)

    async def _watch(self, call: Call) -> None:
        """Reserves, renews the reservation while the request runs, then settles it."""
        try:
            if not await self._make_reservation(call):
                return
            await self._renew_while_running(call)
            try:
                # At most a third of the time, so that the reservation does not end meanwhile.
                await asyncio.wait_for(call.reported.wait(), min(LOG_SECONDS, call.lasts_seconds / 3))
            except (TimeoutError, asyncio.TimeoutError):
                pass
            await self._settle(call, PAUSES_BEFORE_NEXT_ATTEMPT)
        except asyncio.CancelledError:
            # The proxy stops. Its event loop waits for this task, so there is time for one attempt. A request
            # to reserve may still be under way, and arrive after that.
            await self._settle(call, TWO_ATTEMPTS if call.is_lost else ONE_ATTEMPT)
            raise

    async def _make_reservation(self, call: Call) -> bool:
        """Sends the request to reserve. Returns whether there is a reservation to settle."""
        body = {
            **call.reservation,
            "costs": {"tokens": call.estimate.tokens},
            "ttl": f"{self._settings.reservation_seconds}s",
        }
        try:
            call.answer = await self._trypema.post("/v1/reserve", body, call.note_lost)
            if reservation := call.answer.get("reservation"):
                call.reservation = {"reservation": reservation}
                call.lasts_seconds = self._seconds_of(call.answer)
                call.is_lost = False
                return True
        except asyncio.CancelledError:
            call.error = TrypemaUnavailable("/v1/reserve: the proxy stops")
            call.note_lost()
            call.note_unused()
            raise
        except Exception as error:
            call.error = error
        finally:
            call.answered.set()
        if call.is_lost:
            await self._release_lost(call)
        return False

    async def _release_lost(self, call: Call) -> None:
        """Releases what a request without an answer may have reserved."""
        call.note_unused()
        if self._lost >= MAX_LOST_RESERVATIONS:
            logger.warning(
                "no answer to the reservation of call %s, and %s others are being released; its estimate may"
                " stay counted",
                call.call_id,
                self._lost,
            )
            return
        self._lost += 1
        try:
            await self._settle(call, PAUSES_BEFORE_NEXT_ATTEMPT)
        finally:
            self._lost -= 1

    async def _settle(self, call: Call, pauses: tuple[float | None, ...]) -> None:
        try:
            # In a thread: counting the text of a long stream takes a while.
            tokens = await asyncio.to_thread(call.tokens_to_settle)
            if call.failed and tokens == 0:
                await self._end(call, "release", {}, pauses)
            else:
                await self._end(call, "settle", {"costs": {"tokens": tokens}}, pauses)
        except (TrypemaUnavailable, TrypemaRefused) as error:
            stay = "may stay" if call.is_lost else "stays"
            logger.warning("could not settle call %s; its estimate %s counted: %s", call.call_id, stay, error)
        except Exception:
            logger.exception("could not settle call %s; its estimate stays counted", call.call_id)

    async def _renew_while_running(self, call: Call) -> None:
        body = {**call.reservation, "ttl": f"{self._settings.reservation_seconds}s"}
        while True:
            try:
                await asyncio.wait_for(call.ended.wait(), call.lasts_seconds / 3)
                return
            except (TimeoutError, asyncio.TimeoutError):
                pass
            try:
                answer = await self._trypema.post("/v1/renew", body)
                if not answer.get("renewed"):
                    logger.warning("the reservation of call %s ended while it was running", call.call_id)
                    await call.ended.wait()
                    return
                call.lasts_seconds = self._seconds_of(answer)
            except (TrypemaUnavailable, TrypemaRefused) as error:
                logger.warning("the reservation of call %s was not renewed: %s", call.call_id, error)

    def _seconds_of(self, answer: Mapping[str, Any]) -> float:
        """Returns how long a reservation lasts: a rule may allow less than was asked for."""
        milliseconds = answer.get("expires_in_ms")
        return milliseconds / 1000 if milliseconds else float(self._settings.reservation_seconds)

    async def _end(
        self, call: Call, verb: str, body: Mapping[str, Any], pauses: tuple[float | None, ...]
    ) -> None:
        """Settles or releases, and repeats that later if Trypema does not answer or its Redis fails.

        A reservation without an answer is released again until it is found: the request that makes it may
        still be under way.
        """
        body = {**call.reservation, **body}
        for pause in pauses:
            is_repeated, call.end_was_sent = call.end_was_sent, True
            try:
                answer = await self._trypema.post(f"/v1/{verb}", body)
                rules = answer.get("rules", [])
                failed = [rule["key"] for rule in rules if rule.get("status") in REPEATED_STATUSES]
                if failed:
                    raise TrypemaUnavailable(f"/v1/{verb}: Redis failed at {', '.join(failed)}")
            except TrypemaUnavailable:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
                continue
            found = {rule["status"] for rule in rules}
            if call.is_lost and found == {"not_outstanding"} and pause is not None:
                await asyncio.sleep(pause)
                continue
            # A repeated request may find that an earlier one, whose response was lost, has done it.
            if not answer.get("settled") and not is_repeated and not call.is_lost:
                logger.warning(
                    "call %s: nothing to %s, the reservation ended: %s",
                    call.call_id,
                    verb,
                    ", ".join(sorted(found)),
                )
            return


class CallRefused(ProxyException):
    """A call that does not pass. LiteLLM answers with an error in OpenAI's format."""

    def __init__(
        self, status: int, error_type: str, message: str, retry_seconds: int | None = None
    ) -> None:
        # Clients of OpenAI obey `x-should-retry`. Without it, they repeat a 429 or 5xx at once, whatever the wait.
        is_soon = retry_seconds is not None and retry_seconds <= MAX_RETRY_SECONDS
        headers = {"x-should-retry": "true" if is_soon else "false"}
        if retry_seconds is not None:
            headers["Retry-After"] = str(retry_seconds)
        # Some routes of LiteLLM read this instead of `code`.
        self.status_code = status
        super().__init__(message, error_type, None, status, headers)


def unavailable(message: str) -> CallRefused:
    return CallRefused(503, "server_error", message, retry_seconds=1)


def denial(answer: Mapping[str, Any]) -> CallRefused:
    """Describes why Trypema denies a call: the rule that decided, what it has left, and when to come back."""
    if answer.get("outcome") == "unavailable":
        # The server cannot reach its store, and its policy is to deny.
        return unavailable("the limits cannot be checked now; try again in 1 s")
    rule = deciding_rule(answer)
    if answer.get("outcome") == "blocked":
        by = f"rule {rule_name(rule)}" if rule else f"the list of {answer.get('listed_by')}"
        return CallRefused(403, "permission_error", f"an operator blocked this caller ({by})")
    if rule is None:
        return CallRefused(429, "requests", "the call is denied")
    name, unit, cost = rule_name(rule), rule.get("unit", "requests"), rule.get("cost", 1)
    if attribute := rule.get("missing_attribute"):
        return CallRefused(403, "permission_error", f"the call has no {attribute}, which rule {name} needs")
    if missing := rule.get("missing_unit"):
        message = f"rule {name} counts {missing}, which this proxy does not send; the operator has to change the rule"
        return CallRefused(500, "server_error", message)
    error_type = unit if unit in ("tokens", "requests") else "insufficient_quota"
    limit, remaining, wait = rule["limit"], rule["remaining"], answer.get("retry_after_ms")
    if wait is None:
        advice = "; lower max_tokens or shorten the prompt" if unit == "tokens" else ""
        message = f"rule {name} never allows {cost} {unit} at once: its limit is {limit}{advice}"
        return CallRefused(429, error_type, message)
    seconds = max(1, math.ceil(wait / 1000))
    left = f"this call needs {cost} {unit}, and {remaining} of {limit} are left"
    return CallRefused(429, error_type, f"rule {name}: {left}; try again in {seconds} s", seconds)


def deciding_rule(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the decision of the rule that denied a call. A rule may have decided about several counters."""
    of_rule = [rule for rule in answer.get("rules", []) if rule.get("rule") == answer.get("decided_by")]
    return next((rule for rule in of_rule if not rule.get("allowed")), None)


def rule_name(rule: Mapping[str, Any]) -> str:
    return f"{rule['rule']} ({rule['name']})" if rule.get("name") else str(rule["rule"])


def attributes_of(caller: UserAPIKeyAuth, data: Mapping[str, Any]) -> dict[str, str]:
    api_key = caller.api_key
    attributes = {
        # LiteLLM hashes its own keys. A custom authenticator may return them as they are.
        "api_key": hash_token(api_key) if api_key and api_key.startswith("sk-") else api_key,
        "user": caller.user_id,
        "team": caller.team_id,
        "end_user": caller.end_user_id,
        "model": data.get("model"),
    }
    return {name: value for name, value in attributes.items() if isinstance(value, str) and value}


def is_timeout(error: Exception) -> bool:
    """Whether an attempt ended without a response that the model may have generated."""
    is_of_client = isinstance(error, (Timeout, TimeoutError, asyncio.TimeoutError, httpx.TimeoutException))
    return is_of_client or getattr(error, "status_code", None) in (408, 504)


def usage_of(response: Any) -> int | None:
    """Returns the tokens of a response, or None if it does not say. A list has a response per model."""
    if isinstance(response, list):
        usages = [usage for usage in map(usage_of, response) if usage is not None]
        return sum(usages) if usages else None
    usage = field_of(response, "usage")
    if usage is None:
        return None

    def count(*names: str) -> int | None:
        counts = [count for name in names if isinstance(count := field_of(usage, name), int)]
        return sum(counts) if counts else None

    anthropic = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    # Other responses count their cached tokens as a part of the prompt's.
    of_input = count(*anthropic) if field_of(usage, "input_tokens") is not None else None
    sums = (count("total_tokens"), count("prompt_tokens", "completion_tokens"), of_input)
    # A usage may be in seconds or pages: then its tokens are unknown.
    return max((tokens for tokens in sums if tokens is not None), default=None)


def field_of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def generated_texts(chunks: list[Any]) -> Iterator[str]:
    """Yields the texts that the chunks of a stream add: of OpenAI's, Anthropic's and Google's formats."""
    for chunk in chunks:
        for event in events_of(chunk):
            pending: list[Any] = [event]
            while pending:
                value = pending.pop()
                if isinstance(value, (list, tuple)):
                    pending.extend(value)
                elif isinstance(value, Mapping):
                    for name, content in value.items():
                        if name in ("delta", "parts"):
                            yield from texts_of_delta(content)
                        else:
                            pending.append(content)


def texts_of_delta(delta: Any) -> Iterator[str]:
    # Tool calls repeat these beside the text.
    names = {"id", "role", "type"}
    if isinstance(delta, Mapping):
        delta = {name: content for name, content in delta.items() if name not in names}
    yield from (text for text in leaves(delta) if isinstance(text, str))


def events_of(chunk: Any) -> Iterator[Any]:
    """Yields a chunk as JSON: an object of LiteLLM, or server-sent events."""
    if hasattr(chunk, "model_dump"):
        yield chunk.model_dump()
    elif isinstance(chunk, (str, bytes)):
        text = chunk.decode(errors="replace") if isinstance(chunk, bytes) else chunk
        for line in text.splitlines():
            try:
                yield json.loads(line.removeprefix("data:"))
            except ValueError:
                continue
    else:
        yield chunk


trypema_hook = TrypemaHook(Settings.from_environment())
