"""Ticks of a schedule, evaluated like Dagster's daemon does."""

from __future__ import annotations

from datetime import datetime

import dagster as dg

from tests.assets.world import World


def ask(world: World, schedule: str, moment: datetime) -> list[dg.RunRequest] | str:
    """Returns the runs that a tick requests, or the reason why it requests none."""
    repository = world.defs.get_repository_def()
    schedule_def = world.defs.resolve_schedule_def(schedule)
    resources = repository.get_top_level_resources()
    with dg.build_schedule_context(
        instance=world.instance,
        scheduled_execution_time=moment,
        repository_def=repository,
        resources={key: resources[key] for key in schedule_def.required_resource_keys},
    ) as context:
        data = schedule_def.evaluate_tick(context)
    return data.skip_message if data.skip_message is not None else list(data.run_requests or [])
