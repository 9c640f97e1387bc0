"""Functions of Spark's DataFrames, for the tests of a `spark` step."""

from __future__ import annotations

import contextlib
import os
import signal
from datetime import datetime

import psutil
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f


def latest(rows: DataFrame) -> DataFrame:
    """The newest row of each name, whatever its partition."""
    newest = Window.partitionBy("name").orderBy(
        f.desc("_timestamp"), f.desc("_partition"), f.desc("_offset")
    )
    return rows.withColumn("n", f.row_number().over(newest)).where("n = 1").drop("n")


def same(rows: DataFrame) -> DataFrame:
    """All rows, with their columns in another order, once through a shuffle and a UDF
    of this file.
    """
    doubled = f.udf(_halved, "long", useArrow=False)
    return (
        rows.select(*sorted(rows.columns)).repartition(3).withColumn("id", doubled(f.col("id") * 2))
    )


def _halved(number: int) -> int:
    return number // 2


def local_times(rows: DataFrame) -> DataFrame:
    """What Python's local time is in a UDF, by an instant and for a message's, and for a constant
    of the driver's.
    """
    epoch = datetime.fromtimestamp
    local_time = f.udf(lambda moment: f"{epoch(0)} {moment:%H:%M}", "string", useArrow=False)
    constant = f.date_format(f.lit(datetime(2026, 1, 5, 12)), " HH:mm")  # noqa: DTZ001
    return rows.withColumn("name", f.concat(local_time("_timestamp"), constant))


def twice(rows: DataFrame) -> DataFrame:
    """Each row two times."""
    return rows.union(rows)


def nothing(rows: DataFrame) -> DataFrame:
    """No row."""
    return rows.where("false")


def wider(rows: DataFrame) -> DataFrame:
    """Rows of `things.Wider`: how many rows of the window have the same name."""
    return rows.withColumn("extra", f.count("*").over(Window.partitionBy("name")).cast("string"))


def placeless(rows: DataFrame) -> DataFrame:
    """Rows that lost where they come from, and have a column too much."""
    return rows.drop("_offset").withColumn("more", f.lit(1))


def elsewhere(rows: DataFrame) -> DataFrame:
    """Rows that say they come from another place."""
    return rows.withColumn("_offset", f.col("_offset") + 1_000_000)


def negative(rows: DataFrame) -> DataFrame:
    """Rows that break a rule of `things.Thing`."""
    return rows.withColumn("id", -f.col("id") - 1)


def nulled(rows: DataFrame) -> DataFrame:
    """Rows with null where there may be none."""
    return rows.withColumn("id", f.when(f.col("id") > 0, f.col("id")))


def fails(rows: DataFrame) -> DataFrame:
    """Asks for a column that isn't there."""
    return rows.select("secret")


def goes(rows: DataFrame) -> DataFrame:
    """Kills the server that the test has named, with all below it, and then asks it."""
    server = psutil.Process(int(os.environ["SERVER_TO_KILL"]))
    killed = [*server.children(recursive=True), server]
    for process in killed:
        with contextlib.suppress(psutil.NoSuchProcess):  # a worker may end by itself
            process.kill()
    psutil.wait_procs(killed, 60)
    rows.count()
    return rows


def no_frame(rows: DataFrame) -> int:
    """Gives no DataFrame."""
    del rows
    return 1


def forgets(rows: DataFrame) -> DataFrame:
    """Has Spark forget all that it was told to remember."""
    rows.sparkSession.catalog.clearCache()
    return rows


def loses(rows: DataFrame) -> DataFrame:
    """Has Spark's executors let go of what was read, as if they were lost."""
    for persisted_rdd in rows.sparkSession.sparkContext._jsc.getPersistentRDDs().values():  # noqa: SLF001
        persisted_rdd.unpersist(True)
    return rows


def looks(rows: DataFrame) -> DataFrame:
    """Looks itself at rows that are lost."""
    loses(rows).count()
    return rows


def halts(rows: DataFrame) -> DataFrame:
    """Stops the driver while what was read is kept, until a test wakes it."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return rows


def breaks(rows: DataFrame) -> DataFrame:
    """Has a UDF that fails."""
    return rows.withColumn("id", f.udf(_broken, "long", useArrow=False)(f.col("id")))


def _broken(number: int) -> int:
    raise ValueError(f"secret {number}")


def foreign(rows: DataFrame) -> DataFrame:
    """Has a UDF of a module that only the driver has."""
    from tests.integration.harness import millis

    return rows.withColumn("id", f.udf(millis, "long", useArrow=False)(f.col("id")))
