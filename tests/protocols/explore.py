"""An explorer of protocols: it tries every order of the processes' steps, every crash, and
every lost reply.

A process is a generator. It yields an `Ask`, which is one atomic step, and is sent the reply. A
process knows only its replies so far, so these are its state, and replaying them restores it.
The world answers an `Ask` by its method of the same name, which returns each possible outcome,
the usual one first. No outcome means that the process waits. So a state is a plain value, and
equal states are explored once. The way to a state is a list of numbers: for each step, which of
the possible steps was taken.
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
    """A request of a process to the world: one atomic step.

    Attributes:
        name: the world's method.
        args: its arguments.
    """

    name: str
    args: tuple[Any, ...] = ()


class Start(NamedTuple):
    """A request to start child processes, which die with their parent.

    The parent waits for their ends.

    Attributes:
        children: name, program and arguments of each child.
    """

    children: tuple[tuple[str, str, tuple[Any, ...]], ...]


class Again(NamedTuple):
    """The program that a process continues as.

    The process forgets all but these arguments, so that loops have few states.

    Attributes:
        program: the program.
        args: its arguments.
    """

    program: str
    args: tuple[Any, ...]


Program: TypeAlias = Generator[Ask | Start, Any, Hashable]


class Process(NamedTuple):
    """A process, running or ended.

    Attributes:
        name: its name.
        program: its program; OVER if it has ended; DEAD if it has died.
        args: the program's arguments; the verdict if it has ended.
        replies: the replies so far.
    """

    name: str
    program: str
    args: tuple[Any, ...] = ()
    replies: tuple[Any, ...] = ()

    @property
    def run(self) -> str:
        """The name of its run."""
        return self.name.partition(".")[0]


OVER, DEAD = "over", "dead"


class State(NamedTuple):
    """The world, and the processes."""

    world: Any
    processes: tuple[Process, ...]


class Step(NamedTuple):
    """A step that can happen.

    Attributes:
        who: the run, or the world itself.
        name: name of the step.
        args: its arguments.
        reply: the reply; None for a step of the world.
        next_state: the state after the step.
    """

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
    """Runs that begin at once in a world, and the runs that must commit in the end.

    Attributes:
        world: the world.
        processes: the runs.
        required_runs: arguments of runs that are made one after the other once all faults are
            over, in any state of the other runs. Each must commit.
        refusable: allowed reasons for a refusal.
    """

    world: Any
    processes: tuple[Process, ...]
    required_runs: tuple[tuple[Any, ...], ...]
    refusable: frozenset[str] = frozenset()


class Broken(msgspec.Struct, frozen=True):
    """A promise that a state breaks.

    Attributes:
        violation: the promise.
        choices: the way to the state.
    """

    violation: str
    choices: tuple[int, ...]


class Explored(msgspec.Struct, frozen=True):
    """The result of an exploration.

    Attributes:
        states: number of states.
        steps: number of steps.
        broken: the first state that breaks a promise, with a shortest way; None if there is
            none.
    """

    states: int
    steps: int
    broken: Broken | None = None


class Protocol(ABC):
    """A protocol.

    Its programs are methods, each a generator; `run` takes the arguments of
    `Scenario.required_runs`.

    Attributes:
        name: name of the protocol.
        scenarios: its scenarios by name.
    """

    name: str
    scenarios: Mapping[str, Scenario]

    def __init__(self) -> None:
        self._next: dict[tuple[Any, ...], Ask | Start | Process] = {}
        self._judged: dict[Any, str | None] = {}

    @abstractmethod
    def find_violation(self, world: Any) -> str | None:
        """Returns the promise that a world breaks, or None."""

    @abstractmethod
    def find_loss(self, old_world: Any, new_world: Any) -> str | None:
        """Returns the promise that a step breaks, or None."""

    @abstractmethod
    def refute(self, verdict: Any, world: Any, scenario: Scenario) -> str | None:
        """Returns the error in a run's verdict in the world in which it is given, or None."""

    # --- steps

    def steps(self, state: State, *, in_any_order: bool = False) -> list[Step]:
        """Returns all steps that can happen next.

        A step that doesn't change the world, and that the world can't change, comes alone: any
        order of it and the others leads to the same states.

        Args:
            state: the state.
            in_any_order: True to return also the others, for following a recorded order.
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
    """Names of steps whose only outcome, if it doesn't change the world, stays the same for
    ever.
    """

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
        """Returns the process, or its next program if its program has returned."""
        asks = self._next_request(process)
        return (
            self._begin(asks)
            if isinstance(asks, Process) and asks.program != OVER
            else asks
            if isinstance(asks, Process)
            else process
        )

    def _next_request(self, process: Process) -> Ask | Start | Process:
        """Returns the next request of a process, or the process that it has become."""
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

    # --- promises

    def first(self, scenario: Scenario) -> State:
        """Returns the first state of a scenario."""
        return State(scenario.world, tuple(self._begin(p) for p in scenario.processes))

    def broken_by(self, old_state: State, step: Step, scenario: Scenario) -> str | None:
        """Returns the promise that a step, or the state after it, breaks, or None."""
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
        """Returns a required run that doesn't commit, or None (liveness).

        The run starts in this world without faults, and the other runs never move again. Their
        requests under way may still arrive.
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
        """Returns the next state of one run without faults, by the usual outcome; None at its
        end.

        The world acts only if the run waits.
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
    """Explores every state of a scenario, breadth first, up to the first that breaks a promise."""
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
    """Follows one random way to its end, for scenarios that are too large to explore."""
    chance, state, choices = random.Random(seed), protocol.first(scenario), []
    for _ in range(limit):
        steps = protocol.steps(state)
        if not steps:
            break
        # each run may die at each step, but in most ways none does
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
    """Returns a way as numbered steps, with the promises that it breaks."""
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
    """Compares a trace of real runs with the model.

    Args:
        protocol: the model.
        scenario: the scenario in which the real runs began.
        trace: the recorded events in order.
        fits: a function that returns whether a step is an event's; for None, whether no
            recorder sees the step.

    Returns:
        The events from the first one on that the model can't follow; [] if it follows all.
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
    """Returns these states, and all that follow by steps that no recorder sees."""
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
