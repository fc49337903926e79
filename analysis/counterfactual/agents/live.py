"""Live agents: models behind any OpenAI-compatible endpoint, asked through the `openai` client (extra `live`).

Decides what is tried again, how long it waits, and what stops a run. An endpoint that fails for a while makes an answer with
an error; a key that is refused or a spent budget ends the run, which can be taken up again: what was answered is kept.
"""

from __future__ import annotations

import email.utils
import hashlib
import importlib
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from analysis.counterfactual.agents.ledger import Answer, Cost, Ledger
from analysis.counterfactual.agents.prompts import Message, messages_of, read_answer, repair_of
from analysis.counterfactual.agents.protocol import Request, Response
from analysis.errors import EndpointError, printable

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_OVERHEAD_TOKENS = 64  # what a chat template puts around the messages, at most
_REFUSED = (401, 403, 404)  # every call would end so
_AGAIN = (408, 409, 429)  # besides 500 and above
_MAYBE_PAID = (408, 504)  # a gateway gave up waiting; the model behind it may not have
_NO_KEY = "none"

Positive = Annotated[float, msgspec.Meta(gt=0)]
Price = Annotated[float, msgspec.Meta(ge=0)]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model and how it is asked, as a team file declares it.

    key_env : name of the environment variable that holds the key; none for servers that want no key
    temperature : the server's own where none is given
    max_tokens : of one answer; `tokens_field` is what the server calls it
    timeout_s : how long it may be silent
    n_tries : how often a call is made at most
    patience_s : the longest wait that the endpoint may ask for before the call is given up
    per_minute : how many calls a minute, over all threads and processes that share a ledger
    stream : take answers piece by piece, as servers want that close silent connections
    json_mode : ask for JSON by `response_format`, where the server has that
    input_price, output_price : of a million tokens, in any one currency
    instructions : what the model is told besides
    more : further fields of the request as they are, such as top_p
    """

    base_url: str
    model: str
    key_env: str | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(gt=0)] = 1024
    tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    timeout_s: Positive = 120.0
    n_tries: Annotated[int, msgspec.Meta(ge=1)] = 6
    patience_s: Positive = 120.0
    per_minute: Positive | None = None
    stream: bool = False
    json_mode: bool = False
    input_price: Price = 0.0
    output_price: Price = 0.0
    instructions: str = ""
    more: dict[str, Any] = {}


class _NoAnswerError(Exception):
    """A call that was given up; its text says why."""


class _CutError(Exception):
    """What came back is no whole answer: a stream that ended early, or a body that is no JSON."""


class LiveAgent:
    """An agent that asks a model. Several may share a ledger, and threads one agent."""

    def __init__(self, endpoint: Endpoint, ledger: Ledger, *, environ: Mapping[str, str] = os.environ) -> None:
        if "@" in urlsplit(endpoint.base_url).netloc:
            raise EndpointError("base_url", "it holds a password", hint="name the variable that holds the key in key_env")
        self._endpoint, self._ledger = endpoint, ledger
        self._key = _key(endpoint, environ)
        self._openai = _library()
        self._client = self._openai.OpenAI(
            api_key=self._key, base_url=endpoint.base_url, max_retries=0, timeout=endpoint.timeout_s
        )

    def act(self, request: Request) -> Response:
        """Answer a request. An answer of the wrong form is asked for once more; then, as where none comes, there is an error.

        Raises BudgetSpent before a call that could cost too much, EndpointError where every call would be refused.
        """
        started_s, answers = time.perf_counter(), list[Answer]()
        try:
            found = self._talked(request, answers)
            lasted_s = sum([answer.duration_s for answer in answers])
        except _NoAnswerError as error:
            found, lasted_s = Response(error=str(error)), time.perf_counter() - started_s
        return msgspec.structs.replace(found, duration_s=round(lasted_s, 6), **_tokens(answers))

    def _talked(self, request: Request, answers: list[Answer]) -> Response:
        """Ask, and where the answer cannot be read, once more; `answers` gathers what was said."""
        json_mode, problem = self._endpoint.json_mode, ""
        messages = messages_of(request, instructions=self._endpoint.instructions, json_mode=json_mode)
        for _ in range(2):
            answers.append(self._answer(request, messages))
            found = read_answer(request, answers[-1].text)
            if isinstance(found, Response):
                return found
            problem = found
            messages = [*messages, *repair_of(request, answers[-1].text, problem, json_mode=json_mode)]
        return Response(text=answers[-1].text, error=f"the answer cannot be read: {printable(problem)}")

    def _answer(self, request: Request, messages: list[Message]) -> Answer:
        """Return the answer to these messages: the one that was paid for before, or a new one."""
        end = self._endpoint
        body: dict[str, Any] = {"model": end.model, "messages": messages, end.tokens_field: end.max_tokens}
        body |= {} if end.temperature is None else {"temperature": end.temperature}
        body |= {"response_format": {"type": "json_object"}} if end.json_mode else {}
        body |= {"stream": True, "stream_options": {"include_usage": True}} if end.stream else {}
        # Another trial is another sample, the same step of a replay the same one.
        asked = [end.base_url, {**body, **end.more}, request.seed, request.key, request.attempt]
        key = hashlib.blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=20).hexdigest()
        with self._ledger.alone(key):
            return self._ledger.answered(key) or self._paid(request, key, body)

    def _paid(self, request: Request, key: str, body: dict[str, Any]) -> Answer:
        end, why = self._endpoint, ""
        n_bytes = sum([len(message["content"].encode()) for message in body["messages"]])  # a token has at least one
        most = self._cost(n_bytes + _OVERHEAD_TOKENS * len(body["messages"]), end.max_tokens)
        for attempt in range(end.n_tries):
            if end.per_minute is not None:
                time.sleep(self._ledger.slot_s(end.base_url, end.per_minute))
            call_id = self._ledger.enter(key, most)
            wait_s = _FIRST_WAIT_S * 2**attempt * (0.5 + request.draw("wait", attempt) / 2)
            try:
                answer = self._sent(body)
            except self._openai.APIStatusError as error:
                if error.status_code not in _MAYBE_PAID:
                    self._ledger.strike(call_id)
                why = self._without_key(f"{error.status_code}: {error.message}")
                self._check(error, why)
                wait_s = _retry_after_s(error.response.headers, wait_s)
            except self._openai.APITimeoutError:
                why = f"no answer within {end.timeout_s:g} s"
            except self._openai.APIConnectionError as error:
                why = self._without_key(f"the connection failed: {error.__cause__ or error}")
                if _is_unsent(error):
                    self._ledger.strike(call_id)
            except _CutError as error:
                why = str(error)
            else:
                is_known = answer.input_tokens is not None and answer.output_tokens is not None
                cost = self._cost(answer.input_tokens or 0, answer.output_tokens or 0) if is_known else None
                self._ledger.settle(call_id, key, answer, cost)
                return answer
            if wait_s > end.patience_s:
                raise _NoAnswerError(f"the endpoint asks to wait {wait_s:g} s ({why})")
            if attempt + 1 < end.n_tries:
                time.sleep(min(wait_s, end.patience_s))
        raise _NoAnswerError(f"no answer in {end.n_tries} tries, the last: {why}")

    def _check(self, error: Any, why: str) -> None:
        """Raise where the same call will never be answered."""
        if error.status_code in _REFUSED or error.code == "insufficient_quota":
            hint = "check base_url, model, key_env and the account"
            raise EndpointError(self._endpoint.base_url, "the endpoint refuses calls", got=why, hint=hint) from None
        if error.status_code < 500 and error.status_code not in _AGAIN:
            raise _NoAnswerError(f"the endpoint refuses this call ({why})") from None

    def _sent(self, body: dict[str, Any]) -> Answer:
        """Make one call. Raises what the client raises, and _CutError where what came is no whole answer."""
        started_s = time.perf_counter()
        try:
            reply = self._client.chat.completions.create(**body, extra_body=self._endpoint.more or None)
            text, reason, usage = _streamed(reply) if self._endpoint.stream else _whole(reply)
        except (ValueError, AttributeError, IndexError, TypeError) as error:  # another shape, which the client lets pass
            raise _CutError(f"what came back is no chat completion ({type(error).__name__})") from error
        except self._openai.APIError as error:
            if isinstance(error, self._openai.APIStatusError | self._openai.APIConnectionError):
                raise
            raise _CutError(self._without_key(f"the stream carried an error: {error.message}")) from error
        clean = self._without_key(text.encode("utf-8", "replace").decode())
        tokens = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
        return Answer(clean, reason, tokens[0], tokens[1], round(time.perf_counter() - started_s, 6))

    def _cost(self, input_tokens: int, output_tokens: int) -> Cost:
        end = self._endpoint
        return Cost(input_tokens + output_tokens, (input_tokens * end.input_price + output_tokens * end.output_price) / 1e6)

    def _without_key(self, text: str) -> str:
        """Servers have been seen to repeat the key in an error; it goes into no trace, ledger or message."""
        return text if self._key == _NO_KEY else text.replace(self._key, "[key]")


def _key(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    """Return the key; without a variable's name none is sent, whatever else the environment holds."""
    if endpoint.key_env is None:
        return _NO_KEY
    key = environ.get(endpoint.key_env, "").strip()
    if not key or not (key.isascii() and key.isprintable()):
        problem = "the environment variable holds no key" if not key else "the key has characters that no key has"
        raise EndpointError(endpoint.key_env, problem, hint=f"export {endpoint.key_env}=… before the run")
    return key


def _library() -> Any:
    try:
        return importlib.import_module("openai")
    except ImportError:
        hint = "pip install 'counterpoint[live]'"
        raise EndpointError("live agents", "the package openai is not installed", hint=hint) from None


def _whole(reply: Any) -> tuple[str, str | None, Any]:
    choice = reply.choices[0]
    return choice.message.content or "", choice.finish_reason, reply.usage


def _streamed(reply: Any) -> tuple[str, str | None, Any]:
    """Gather the pieces of an answer; without the reason for its end it has been cut off."""
    pieces: list[str] = []
    reason, usage = None, None
    with reply:
        for chunk in reply:
            usage = chunk.usage or usage
            for choice in chunk.choices[:1]:
                pieces.append(choice.delta.content or "")
                reason = choice.finish_reason or reason
    if reason is None:
        raise _CutError("the stream ended before the answer did")
    return "".join(pieces), reason, usage


def _is_unsent(error: Any) -> bool:
    """Whether the connection was never made, so that nothing can have been paid."""
    return type(error.__cause__).__name__ in ("ConnectError", "ConnectTimeout")


def _retry_after_s(headers: Mapping[str, str], otherwise_s: float) -> float:
    """Return how long the endpoint wants to be left alone: seconds or a date; without either, as we wait anyhow."""
    said = headers.get("retry-after", "")
    try:
        return max(0.0, float(said))
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(said)
    except ValueError:
        return min(otherwise_s, _LONGEST_WAIT_S)
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _tokens(answers: list[Answer]) -> dict[str, int | None]:
    """Sum up; what one answer does not say, all together do not say."""
    counts = {"input_tokens": [a.input_tokens for a in answers], "output_tokens": [a.output_tokens for a in answers]}
    return {
        name: None if not known or None in known else sum([n for n in known if n is not None]) for name, known in counts.items()
    }  # fmt: skip
