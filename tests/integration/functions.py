"""Functions of Spark's DataFrames, for the tests of the `spark` step."""

from __future__ import annotations

import contextlib
import os
import signal
from datetime import datetime

import psutil
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f


def latest(rows: DataFrame) -> DataFrame:
    """Returns the newest row of each name, over all partitions."""
    newest = Window.partitionBy("name").orderBy(
        f.desc("_timestamp"), f.desc("_partition"), f.desc("_offset")
    )
    return rows.withColumn("n", f.row_number().over(newest)).where("n = 1").drop("n")


def same(rows: DataFrame) -> DataFrame:
    """Returns all rows, with reordered columns, after a shuffle and a UDF of this file."""
    doubled = f.udf(_halved, "long", useArrow=False)
    return (
        rows.select(*sorted(rows.columns)).repartition(3).withColumn("id", doubled(f.col("id") * 2))
    )


def _halved(number: int) -> int:
    return number // 2


def local_times(rows: DataFrame) -> DataFrame:
    """Adds times that show which zone applies: in a UDF, for a timestamp, and in the driver.

    The UDF gives the local time of the epoch and of a message. The driver gives a constant.
    """
    epoch = datetime.fromtimestamp
    local_time = f.udf(lambda moment: f"{epoch(0)} {moment:%H:%M}", "string", useArrow=False)
    constant = f.date_format(f.lit(datetime(2026, 1, 5, 12)), " HH:mm")  # noqa: DTZ001
    return rows.withColumn("name", f.concat(local_time("_timestamp"), constant))


def twice(rows: DataFrame) -> DataFrame:
    """Returns each row two times."""
    return rows.union(rows)


def nothing(rows: DataFrame) -> DataFrame:
    """Returns no row."""
    return rows.where("false")


def wider(rows: DataFrame) -> DataFrame:
    """Returns rows of `things.Wider`. `extra` is the number of rows with the same name."""
    return rows.withColumn("extra", f.count("*").over(Window.partitionBy("name")).cast("string"))


def placeless(rows: DataFrame) -> DataFrame:
    """Returns rows without `_offset` and with a surplus column."""
    return rows.drop("_offset").withColumn("more", f.lit(1))


def elsewhere(rows: DataFrame) -> DataFrame:
    """Returns rows with offsets outside the window."""
    return rows.withColumn("_offset", f.col("_offset") + 1_000_000)


def negative(rows: DataFrame) -> DataFrame:
    """Returns rows that break a rule of `things.Thing`."""
    return rows.withColumn("id", -f.col("id") - 1)


def nulled(rows: DataFrame) -> DataFrame:
    """Returns rows with null in a column that isn't nullable."""
    return rows.withColumn("id", f.when(f.col("id") > 0, f.col("id")))


def fails(rows: DataFrame) -> DataFrame:
    """Selects a column that doesn't exist."""
    return rows.select("secret")


def goes(rows: DataFrame) -> DataFrame:
    """Kills the server of SERVER_TO_KILL with all its processes, and then queries it."""
    server = psutil.Process(int(os.environ["SERVER_TO_KILL"]))
    killed = [*server.children(recursive=True), server]
    for process in killed:
        with contextlib.suppress(psutil.NoSuchProcess):  # A worker may end by itself.
            process.kill()
    psutil.wait_procs(killed, 60)
    rows.count()
    return rows


def no_frame(rows: DataFrame) -> int:
    """Returns an int instead of a DataFrame."""
    del rows
    return 1


def forgets(rows: DataFrame) -> DataFrame:
    """Clears Spark's cache."""
    rows.sparkSession.catalog.clearCache()
    return rows


def loses(rows: DataFrame) -> DataFrame:
    """Removes the persisted data from Spark's executors, as if the executors were lost."""
    for persisted_rdd in rows.sparkSession.sparkContext._jsc.getPersistentRDDs().values():  # noqa: SLF001
        persisted_rdd.unpersist(True)
    return rows


def looks(rows: DataFrame) -> DataFrame:
    """Counts rows whose persisted data is lost."""
    loses(rows).count()
    return rows


def halts(rows: DataFrame) -> DataFrame:
    """Stops the driver while the persisted data exists, until a test wakes it."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return rows


def breaks(rows: DataFrame) -> DataFrame:
    """Applies a UDF that fails."""
    return rows.withColumn("id", f.udf(_broken, "long", useArrow=False)(f.col("id")))


def _broken(number: int) -> int:
    raise ValueError(f"secret {number}")


def foreign(rows: DataFrame) -> DataFrame:
    """Applies a UDF of a module that only the driver has."""
    from tests.integration.harness import millis

    return rows.withColumn("id", f.udf(millis, "long", useArrow=False)(f.col("id")))
