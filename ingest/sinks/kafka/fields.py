"""The layout of the arrays that the compiled pass `produce` reads."""

CALLS = ("produceva", "error_code", "error_destroy")
"""The functions of librdkafka that the pass calls, without the prefix `rd_kafka_`."""

WORDS = 9
"""Size of a rd_kafka_vu_t in 64-bit words: the kind of argument, then a union of 64 bytes."""

TOPIC, PARTITION, FLAGS, TIME, VALUE, KEY, HEADERS = range(7)
"""Positions of the arguments in the array of rd_kafka_vu_t; headers come last."""
