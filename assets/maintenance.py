"""The job that maintains a pipeline's table, and its schedule, if the spec has one."""

# No postponed annotations here: Dagster reads the annotations of the decorated function.

import dagster as dg

from windrow.assets.dependencies import ledger_of, tables_of
from windrow.assets.failures import as_windrow_error, retry_or_failure
from windrow.assets.names import ledger_key, maintenance_name, sink_key
from windrow.assets.schedule import make_schedule
from windrow.ingest.admin.maintain import maintain_tables
from windrow.ingest.config.pipeline import PipelineSpec
from windrow.ingest.errors import foreign_exceptions


def maintenance_of(spec: PipelineSpec) -> list[dg.ScheduleDefinition]:
    """Returns the schedule of the job that maintains the table, if the spec has one."""
    if spec.maintain.schedule is None:
        return []
    name = maintenance_name(spec)

    @dg.op(name=f"{name}_step", required_resource_keys={sink_key(spec), ledger_key(spec)})
    def maintain(context: dg.OpExecutionContext) -> None:
        """Joins small files, expires old versions, and removes unneeded files."""
        try:
            done = maintain_tables(
                spec,
                tables_of(spec, context.resources),
                lambda: ledger_of(spec, context.resources),
                dry_run=False,
            )
        except foreign_exceptions() as raised:  # an unknown error counts as a bug
            subject, error = f"The maintenance of {spec.id}", as_windrow_error(raised)
            failure = retry_or_failure(subject, error, context.retry_number, spec.dagster)
            raise failure from None
        context.log.info(
            "%d files joined in %d, %d snapshots, %d dead letters and %d rows expired, %d files"
            " removed",
            done.joined_files,
            done.new_files,
            done.expired_versions,
            done.expired_dead_letters,
            done.expired_rows,
            len(done.removed_files),
        )

    @dg.job(name=name, description=f"Maintains the table of {spec.id}")
    def maintenance() -> None:
        maintain()

    crons = [spec.maintain.schedule]
    return [make_schedule(name, crons, maintenance, lambda _context: dg.RunRequest(), set())]
