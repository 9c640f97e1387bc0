"""Explores all that processes can do to a world between them, step by step: every
order, every crash, every reply that is lost.

A process is a generator: it yields an `Ask`, which is one atomic step, and is sent the
reply. All that it knows are the replies so far, so these are its state, and it is
brought there again by replaying them. What is asked, the world answers: a method of
that name gives each outcome that there can be, the usual one first; none means that the
process waits. So a state is a plain value, states that are equal are looked into once,
and the way to one is a list of numbers: which of the steps that there were was taken.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")


class Ask(NamedTuple):
    """What a process asks of the world: one atomic step."""

    name: str
    args: tuple[Any, ...] = ()


class Start(NamedTuple):
    """Processes that live and die with the one that starts them: (name, program,
    arguments) of each.

    It waits for their ends.
    """

    children: tuple[tuple[str, str, tuple[Any, ...]], ...]


class Again(NamedTuple):
    """What a process goes on as.

    It forgets all but these arguments, so that loops have few states.
    """

    program: str
    args: tuple[Any, ...]


Program: TypeAlias = Generator[Ask | Start, Any, Hashable]


class Process(NamedTuple):
    """A process, or what has become of it: then the program is OVER and `args` its
    verdict, or DEAD.
    """

    name: str
    program: str
    args: tuple[Any, ...] = ()
    replies: tuple[Any, ...] = ()

    @property
    def run(self) -> str:
        """The run that it is of."""
        return self.name.partition(".")[0]


OVER, DEAD = "over", "dead"


class State(NamedTuple):
    """The world, and how far each process is."""

    world: Any
    processes: tuple[Process, ...]


class Step(NamedTuple):
    """One thing that can happen. `who`: the run, or the world itself, which asks nothing."""

    who: str
    name: str
    args: tuple[Any, ...]
    reply: Any
    next_state: State

    def __str__(self) -> str:
        arguments = ", ".join(map(_shorten, self.args))
        reply_text = "" if self.reply is None else f" -> {_shorten(self.reply)}"
        return (
            f"{self.who}: {self.name}({arguments}){reply_text}"
            if self.args or reply_text
            else f"{self.who}: {self.name}"
        )


def _shorten(value: Any) -> str:
    if isinstance(value, tuple | frozenset) and not hasattr(value, "_fields"):
        return f"[{', '.join(map(_shorten, sorted(value, key=str) if isinstance(value, frozenset) else value))}]"  # noqa: E501
    return str(value)


class Scenario(NamedTuple):
    """Runs that begin at once in a world, and what must be had in the end.

    `required_runs`: runs that are made one after the other when all faults are over, whatever
    the others were doing: each must commit. `refusable`: why a run may be refused here.
    """

    world: Any
    processes: tuple[Process, ...]
    required_runs: tuple[tuple[Any, ...], ...]
    refusable: frozenset[str] = frozenset()


class Broken(msgspec.Struct, frozen=True):
    """A promise that doesn't hold in a state, and the way there."""

    violation: str
    choices: tuple[int, ...]


class Explored(msgspec.Struct, frozen=True):
    """Extent of what was looked into; `broken`: the first state that breaks a promise, by one
    of the shortest ways.
    """

    states: int
    steps: int
    broken: Broken | None = None


class Protocol(ABC):
    """A protocol: its programs are methods, each a generator.

    `run` takes what `Scenario.wanted` gives.
    """

    name: str
    scenarios: Mapping[str, Scenario]

    def __init__(self) -> None:
        self._next: dict[tuple[Any, ...], Ask | Start | Process] = {}
        self._judged: dict[Any, str | None] = {}

    @abstractmethod
    def find_violation(self, world: Any) -> str | None:
        """Which promise a world breaks."""

    @abstractmethod
    def find_loss(self, old_world: Any, new_world: Any) -> str | None:
        """Which promise one step breaks."""

    @abstractmethod
    def refute(self, verdict: Any, world: Any, scenario: Scenario) -> str | None:
        """What is not so of a verdict, in the world in which it is given."""

    # ----------------------------------------------------------------------------------------------

    def steps(self, state: State, *, in_any_order: bool = False) -> list[Step]:
        """All that can happen next.

        A step that changes nothing in the world, and that nothing in the world can
        change, comes first, and alone: in whatever order it and the others come, they
        lead to the same states. `in_any_order`: not so, for who goes by an order that
        was seen.
        """
        steps: list[Step] = []
        for index, process in enumerate(state.processes):
            if process.program not in {OVER, DEAD}:
                process_steps = [*self._steps_of(state, index, process)]
                if (
                    not in_any_order
                    and len(process_steps) == 1
                    and process_steps[0].name in self.private
                    and process_steps[0].next_state.world == state.world
                ):
                    return process_steps
                steps += process_steps
        return [*steps, *self._faults(state)]

    private = frozenset({"starts", "has", "freeze", "stage", "keep_letters", "shown"})
    """Steps that, where they have one outcome that changes nothing, have it for ever."""

    def _faults(self, state: State) -> Iterator[Step]:
        for run in sorted({p.run for p in state.processes if p.program not in {OVER, DEAD}}):
            rest = tuple(
                (
                    p._replace(program=DEAD, args=(), replies=())
                    if p.run == run and p.program != OVER
                    else p
                )
                for p in state.processes
            )
            yield Step(run, "dies", (), None, state._replace(processes=rest))
        for event, world in state.world.events():
            yield Step("the world", event, (), None, state._replace(world=world))

    def _steps_of(self, state: State, index: int, process: Process) -> Iterator[Step]:
        asks = self._next_request(process)
        if isinstance(asks, Start):
            yield from self._wait_steps(state, index, process, asks)
            return
        assert isinstance(asks, Ask)
        for reply, world in getattr(state.world, asks.name)(process.run, *asks.args):
            yield Step(
                process.run,
                asks.name,
                asks.args,
                reply,
                State(world, self._with_reply(state.processes, index, process, reply)),
            )

    def _wait_steps(
        self, state: State, index: int, process: Process, start: Start
    ) -> Iterator[Step]:
        names = [name for name, _, _ in start.children]
        process_by_name = {p.name: p for p in state.processes}
        if names[0] not in process_by_name:
            born = tuple(self._begin(Process(*child)) for child in start.children)
            yield Step(
                process.run,
                "starts",
                tuple(names),
                None,
                state._replace(processes=state.processes + born),
            )
        elif all(process_by_name[name].program == OVER for name in names):
            rest = tuple(p for p in state.processes if p.name not in names)
            verdicts = tuple(process_by_name[name].args[0] for name in names)
            yield Step(
                process.run,
                "has",
                tuple(names),
                verdicts,
                State(state.world, self._with_reply(rest, rest.index(process), process, verdicts)),
            )

    def _with_reply(
        self, processes: tuple[Process, ...], index: int, process: Process, reply: Any
    ) -> tuple[Process, ...]:
        return (
            *processes[:index],
            self._begin(process._replace(replies=(*process.replies, reply))),
            *processes[index + 1 :],
        )

    def _begin(self, process: Process) -> Process:
        """The process itself, or what it is once its program has returned."""
        asks = self._next_request(process)
        return (
            self._begin(asks)
            if isinstance(asks, Process) and asks.program != OVER
            else asks
            if isinstance(asks, Process)
            else process
        )

    def _next_request(self, process: Process) -> Ask | Start | Process:
        """What a process asks next, or what it has become."""
        if process.program == OVER:
            return process
        request = self._next.get(process)
        if request is None:
            request = self._next[process] = self._replay_requests(process)
        return request

    def _replay_requests(self, process: Process) -> Ask | Start | Process:
        program: Program = getattr(self, process.program)(process.run, *process.args)
        try:
            asks = next(program)
            for reply in process.replies:
                asks = program.send(reply)
        except StopIteration as end:
            if isinstance(end.value, Again):
                return Process(process.name, end.value.program, end.value.args)
            return Process(process.name, OVER, (end.value,))
        return asks

    # ----------------------------------------------------------------------------------------------

    def first(self, scenario: Scenario) -> State:
        """Where a scenario begins."""
        return State(scenario.world, tuple(self._begin(p) for p in scenario.processes))

    def broken_by(self, old_state: State, step: Step, scenario: Scenario) -> str | None:
        """Which promise a step breaks, or the state that it leads to."""
        violation = self.find_loss(old_state.world, step.next_state.world) or self._of_world(
            step.next_state.world, scenario
        )
        if violation is not None:
            return violation
        ended = {
            p for p in step.next_state.processes if p.program == OVER and "." not in p.name
        } - set(old_state.processes)
        return next(
            (
                false_verdict
                for p in ended
                if (false_verdict := self.refute(p.args[0], step.next_state.world, scenario))
                is not None
            ),
            None,
        )

    def _of_world(self, world: Any, scenario: Scenario) -> str | None:
        if world not in self._judged:
            self._judged[world] = self.find_violation(world) or self._unfinished(world, scenario)
        return self._judged[world]

    def _unfinished(self, world: Any, scenario: Scenario) -> str | None:
        """Liveness: whatever the others left, and even if they never move again, runs
        without faults commit what is wanted.

        What was under way may still arrive behind them.
        """
        for number, args in enumerate(scenario.required_runs):
            state = State(world, (self._begin(Process(f"R{number}", "run", args)),))
            for _ in range(200):
                usual = self._usual(state)
                if usual is None:
                    break
                state = usual
            (process,) = state.processes
            verdict = process.args[0] if process.program == OVER else None
            if verdict is None or verdict[0] not in {"Done", "AlreadyDone"}:
                return f"a run of {args} without faults ends with {verdict or 'waiting for ever'}"
            if (
                violation := self.find_violation(state.world)
                or self.refute(verdict, state.world, scenario)
            ) is not None:
                return f"after a run of {args} without faults: {violation}"
            world = state.world
        for event, late in world.events():
            if (violation := self.find_violation(late) or self.find_loss(world, late)) is not None:
                return f"{event}, after all have run without faults: {violation}"
        return None

    def _usual(self, state: State) -> State | None:
        """One step of a state with one run and no faults: the usual outcome; what the
        world does only where the run waits for it.
        """
        for index, process in enumerate(state.processes):
            if (
                process.program not in {OVER, DEAD}
                and (step := next(self._steps_of(state, index, process), None)) is not None
            ):
                return step.next_state
        if all(p.program == OVER for p in state.processes):
            return None
        event = next(iter(state.world.events()), None)
        return None if event is None else state._replace(world=event[1])


def explore(protocol: Protocol, scenario: Scenario, limit: int = 1_000_000) -> Explored:
    """Every state that a scenario can come to, breadth first, until one breaks a promise."""
    first = protocol.first(scenario)
    ways: dict[State, tuple[State, int] | None] = {first: None}
    waiting, steps = deque([first]), 0
    while waiting:
        state = waiting.popleft()
        for number, step in enumerate(protocol.steps(state)):
            steps += 1
            if step.next_state in ways:
                continue
            ways[step.next_state] = (state, number)
            violation = protocol.broken_by(state, step, scenario)
            if violation is not None:
                return Explored(len(ways), steps, Broken(violation, _way(ways, step.next_state)))
            waiting.append(step.next_state)
        if len(ways) > limit:
            raise RuntimeError(
                f"more than {limit} states: the scenario is too large to be explored whole"
            )
    return Explored(len(ways), steps)


def _way(ways: Mapping[State, tuple[State, int] | None], state: State) -> tuple[int, ...]:
    numbers: list[int] = []
    while (predecessor := ways[state]) is not None:
        state, number = predecessor
        numbers.append(number)
    return tuple(reversed(numbers))


def wander(protocol: Protocol, scenario: Scenario, seed: int, limit: int = 500) -> Explored:
    """One way by chance, to its end: for scenarios that are too large to be explored whole."""
    chance, state, choices = random.Random(seed), protocol.first(scenario), []
    for _ in range(limit):
        steps = protocol.steps(state)
        if not steps:
            break
        # each run may die at each step: mostly, none does
        lively = [n for n, step in enumerate(steps) if step.name != "dies"]
        number = (
            chance.choice(lively)
            if lively and chance.random() < 0.95
            else chance.randrange(len(steps))
        )
        choices.append(number)
        violation = protocol.broken_by(state, steps[number], scenario)
        if violation is not None:
            return Explored(len(choices), len(choices), Broken(violation, tuple(choices)))
        state = steps[number].next_state
    return Explored(len(choices), len(choices))


def replay(protocol: Protocol, scenario: Scenario, choices: Sequence[int]) -> list[str]:
    """A way as numbered steps, and what it breaks."""
    state, lines = protocol.first(scenario), []
    for number, choice in enumerate(choices, 1):
        step = protocol.steps(state)[choice]
        lines.append(f"{number:3} {step}")
        violation = protocol.broken_by(state, step, scenario)
        state = step.next_state
        if violation is not None:
            lines.append(f"    BROKEN: {violation}")
    return lines


def accepts(
    protocol: Protocol,
    scenario: Scenario,
    trace: Iterable[T],
    fits: Callable[[Step, T | None], bool],
) -> list[T]:
    """Hold what was recorded of real runs to the model: what of it the model can't
    follow, from the first such event on; [] if it can.

    Args:
        protocol: the model.
        scenario: in which the real runs began.
        trace: what was recorded, in its order.
        fits: whether a step is what an event tells; of None: whether it is one that no
            recorder sees.
    """
    states, remaining_events = {protocol.first(scenario)}, [*trace]
    while remaining_events:
        reachable = _unseen(protocol, states, fits)
        states = {
            step.next_state
            for state in reachable
            for step in protocol.steps(state, in_any_order=True)
            if fits(step, remaining_events[0])
        }
        if not states:
            return remaining_events
        remaining_events.pop(0)
    return []


def _unseen(
    protocol: Protocol, states: Iterable[State], fits: Callable[[Step, Any], bool]
) -> set[State]:
    """These states, and all that they come to by steps that no recorder sees."""
    reached, waiting = set(states), [*states]
    while waiting:
        new = {
            step.next_state
            for step in protocol.steps(waiting.pop(), in_any_order=True)
            if fits(step, None)
        } - reached
        reached |= new
        waiting += new
    return reached
