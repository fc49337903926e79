"""What live calls have cost and what they brought, in one SQLite file: nothing is asked twice, nothing is paid above a cap.

A call is entered at the most that it can cost before it is made, and at what it did cost together with its answer. So a crash
loses at most the calls in flight, and those stay entered at their most. Several threads and processes may share the file.
"""

from __future__ import annotations

import fcntl
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from analysis.errors import BudgetSpent

_PATIENCE_S = 60.0
_SCHEMA = """
create table if not exists answers (key text primary key, answer blob not null);
create table if not exists calls (
    call_id integer primary key, account text not null, key text not null, state text not null, tokens integer not null,
    money real not null, at_s real not null);
create index if not exists calls_of on calls (account);
create table if not exists pace (endpoint text primary key, next_s real not null);
"""


class Answer(msgspec.Struct, frozen=True):
    """What an endpoint said to one call, as it is kept. Tokens are None where it did not say."""

    text: str
    finish_reason: str | None
    input_tokens: int | None
    output_tokens: int | None
    duration_s: float


class Cost(NamedTuple):
    """Tokens in and out together, and money in the currency of the endpoint's prices."""

    tokens: int
    money: float = 0.0


class Cap(msgspec.Struct, frozen=True):
    """What an account may cost in all, calls in flight at their most; None where there is no such limit.

    calls : how many may be made; refused ones count
    """

    tokens: int | None = None
    money: float | None = None
    calls: int | None = None


class Spent(NamedTuple):
    """What an account has cost. `n_open` calls ended in no answer that is known, and stand at the most they can have cost."""

    tokens: int
    money: float
    n_calls: int
    n_open: int


class Ledger:
    """The ledger in a folder. Caps are those of an account, answers are everybody's."""

    def __init__(self, folder: Path, *, account: str = "", cap: Cap | None = None) -> None:
        self._account, self._cap, self._folder = account, cap or Cap(), folder
        (folder / "locks").mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        file = folder / "ledger.sqlite"
        self._store = sqlite3.connect(file, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
        self._store.execute("pragma journal_mode = wal")
        self._store.execute("pragma synchronous = full")
        self._store.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    @contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Keep others, of this process or another, from asking the same thing meanwhile."""
        with (self._folder / "locks" / key[:3]).open("a") as file:  # 4,096 of them: a few strangers may wait for each other
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def answered(self, key: str) -> Answer | None:
        """Return what was answered before."""
        with self._lock:
            row = self._store.execute("select answer from answers where key = ?", (key,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=Answer)

    def enter(self, key: str, most: Cost) -> int:
        """Enter a call that is about to be made and return its number; raises BudgetSpent where too little is left for it."""
        with self._changes() as store:
            tokens, money, n_calls = self._sums(store)
            for name, limit, spent, next_ in (
                ("tokens", self._cap.tokens, tokens, most.tokens), ("money", self._cap.money, money, most.money),
                ("calls", self._cap.calls, n_calls, 1),
            ):  # fmt: skip
                if limit is not None and spent + next_ > limit:
                    got = f"{spent:.10g} of {limit:.10g} {name} spent, it may take {next_:.10g}"
                    raise BudgetSpent("budget", "too little is left for the next call", got=got, hint="raise it and run again")
            row = (self._account, key, "open", most.tokens, most.money, time.time())
            return int(store.execute("insert into calls values (null, ?, ?, ?, ?, ?, ?) returning call_id", row).fetchone()[0])

    def settle(self, call_id: int, key: str, answer: Answer, cost: Cost | None) -> None:
        """Keep an answer and what it cost, both or neither; a cost of None stays at its most."""
        with self._changes() as store:
            store.execute("insert or replace into answers values (?, ?)", (key, msgspec.json.encode(answer)))
            store.execute("update calls set state = 'answered' where call_id = ?", (call_id,))
            if cost is not None:
                store.execute("update calls set tokens = ?, money = ? where call_id = ?", (*cost, call_id))

    def strike(self, call_id: int) -> None:
        """Enter that a call cost nothing: the endpoint refused it."""
        with self._changes() as store:
            store.execute("update calls set state = 'refused', tokens = 0, money = 0 where call_id = ?", (call_id,))

    def slot_s(self, endpoint: str, per_minute: float) -> float:
        """Take the next place in an endpoint's line of calls and return how long it is until then, in seconds."""
        with self._changes() as store:
            now_s = time.time()
            row = store.execute("select next_s from pace where endpoint = ?", (endpoint,)).fetchone()
            at_s = max(now_s, row[0] if row else 0.0)
            store.execute("insert or replace into pace values (?, ?)", (endpoint, at_s + 60 / per_minute))
            return at_s - now_s

    def spent(self) -> Spent:
        """Return what the account has cost so far."""
        with self._changes() as store:
            count = "select coalesce(sum(state = 'open'), 0) from calls where account = ?"
            (n_open,) = store.execute(count, (self._account,)).fetchone()
            return Spent(*self._sums(store), n_open)

    def _sums(self, store: sqlite3.Connection) -> tuple[int, float, int]:
        sums = "select coalesce(sum(tokens), 0), coalesce(sum(money), 0.0), count(*) from calls where account = ?"
        tokens, money, n_calls = store.execute(sums, (self._account,)).fetchone()
        return tokens, money, n_calls

    @contextmanager
    def _changes(self) -> Iterator[sqlite3.Connection]:
        """One transaction, alone among all who have the file open."""
        with self._lock, self._store:  # the connection's own block commits, or takes back where something is raised
            self._store.execute("begin immediate")
            yield self._store
