"""Clocks: which of the steps that are ready runs next, and when it began and ended.

The virtual clock runs one step after the other in the order in which they begin, in whole milliseconds; the real one runs
them side by side. Both count seconds since the run began, and let each agent do one thing at a time, what was ready first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol

_N_THREADS = 128


class Lap(NamedTuple):
    """From when to when, in seconds since the run began."""

    start_s: float
    end_s: float


class Watch(Protocol):
    """Times the pieces of one step, one after the other."""

    def lap(self, stated_s: float, *, is_answer: bool = False) -> Lap:
        """Return the time from the last lap's end to now; on a virtual clock it lasts as long as stated.

        On a real one an answer lasts at least as long: kept ones, of a run that is taken up again, last as long as they did.
        """
        ...


class Offer(NamedTuple):
    """A step that is ready. `place` tells those apart that are ready at once; `perform` does it and times its pieces."""

    place: int
    agent_id: str
    ready_s: float
    perform: Callable[[Watch], Any]


class Clock(Protocol):
    """Decides which offer runs next. `began_s` is when the run began, in seconds since 1970; None where time is not real."""

    began_s: float | None

    def offer(self, offer: Offer) -> None:
        """Take a step that is ready."""
        ...

    def next(self, before_s: float | None) -> tuple[int, Any] | None:
        """Return place and result of the next step that ran; None where none is left that begins before that time."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class _VirtualWatch:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def lap(self, stated_s: float, *, is_answer: bool = False) -> Lap:
        """Add what is stated."""
        start_ms = self.now_ms
        self.now_ms += max(0, round(stated_s * 1000))
        return Lap(start_ms / 1000, self.now_ms / 1000)


class VirtualClock:
    """Whole milliseconds; the same steps give the same times on every machine."""

    began_s: float | None = None

    def __init__(self) -> None:
        self._offers: list[Offer] = []
        self._free_ms: dict[str, int] = {}

    def offer(self, offer: Offer) -> None:
        """Take a step that is ready."""
        self._offers.append(offer)

    def next(self, before_s: float | None) -> tuple[int, Any] | None:
        """Run the step that can begin first; of several, the one that was ready first, then the one with the lowest place."""
        if not self._offers:
            return None
        start_ms, _, place = min([self._start(offer) for offer in self._offers])
        if before_s is not None and start_ms >= round(before_s * 1000):
            return None
        chosen = next(offer for offer in self._offers if offer.place == place)
        self._offers.remove(chosen)
        watch = _VirtualWatch(start_ms)
        result = chosen.perform(watch)
        self._free_ms[chosen.agent_id] = watch.now_ms
        return place, result

    def close(self) -> None:
        """Nothing to let go of."""

    def _start(self, offer: Offer) -> tuple[int, int, int]:
        ready_ms = round(offer.ready_s * 1000)
        return max(ready_ms, self._free_ms.get(offer.agent_id, 0)), ready_ms, offer.place


class _RealWatch:
    def __init__(self, now: Callable[[], float], begin_s: float) -> None:
        self._now, self.last_s = now, begin_s

    def lap(self, stated_s: float, *, is_answer: bool = False) -> Lap:
        """Look at the clock."""
        start_s = self.last_s
        if is_answer:
            time.sleep(max(0.0, start_s + stated_s - self._now()))
        self.last_s = self._now()
        return Lap(start_s, self.last_s)


class RealClock:
    """Microseconds as they pass; steps of different agents run side by side in threads."""

    began_s: float | None

    def __init__(self, *, n_threads: int = _N_THREADS) -> None:
        self.began_s, self._zero = round(time.time(), 3), time.perf_counter()
        self._pool = ThreadPoolExecutor(n_threads)
        self._offers: list[Offer] = []
        self._running: dict[Future[tuple[float, Any]], Offer] = {}
        self._free_s: dict[str, float] = {}

    def offer(self, offer: Offer) -> None:
        """Take a step that is ready."""
        self._offers.append(offer)

    def next(self, before_s: float | None) -> tuple[int, Any] | None:
        """Start what can start and wait for the first to end; with `before_s`, which has passed, nothing more starts."""
        if before_s is None:
            self._start_idle()
        if not self._running:
            return None
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        future = min(done, key=lambda one: self._running[one].place)
        offer = self._running.pop(future)
        self._free_s[offer.agent_id], result = future.result()
        return offer.place, result

    def close(self) -> None:
        """Wait for what still runs and end the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _start_idle(self) -> None:
        busy = {offer.agent_id for offer in self._running.values()}
        for offer in sorted(self._offers, key=lambda o: (o.ready_s, o.place)):
            if offer.agent_id not in busy:
                busy.add(offer.agent_id)
                self._offers.remove(offer)
                begin_s = max(offer.ready_s, self._free_s.get(offer.agent_id, 0.0))
                self._running[self._pool.submit(self._run, offer, begin_s)] = offer

    def _run(self, offer: Offer, begin_s: float) -> tuple[float, Any]:
        """Do a step, whose time began when it could begin."""
        time.sleep(max(0.0, begin_s - self._now()))
        watch = _RealWatch(self._now, begin_s)
        result = offer.perform(watch)
        return watch.last_s, result

    def _now(self) -> float:
        return round(time.perf_counter() - self._zero, 6)
