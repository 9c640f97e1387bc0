"""Ticks of a schedule, as Dagster's daemon makes them."""

from __future__ import annotations

from datetime import datetime

import dagster as dg

from tests.assets.world import World


def ask(world: World, schedule: str, at: datetime) -> list[dg.RunRequest] | str:
    """The runs that a tick asks for, or why it asks for none."""
    repository = world.defs.get_repository_def()
    asked = world.defs.resolve_schedule_def(schedule)
    there = repository.get_top_level_resources()
    with dg.build_schedule_context(
        instance=world.instance,
        scheduled_execution_time=at,
        repository_def=repository,
        resources={key: there[key] for key in asked.required_resource_keys},
    ) as context:
        data = asked.evaluate_tick(context)
    return data.skip_message if data.skip_message is not None else list(data.run_requests or [])
