"""The part of librdkafka's public C API that windrow calls.

They are the functions of the library that confluent-kafka itself runs on. Their names and
signatures are those of rdkafka.h without the prefix `rd_kafka_`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import confluent_kafka
from confluent_kafka import cimpl

from windrow.ingest.errors import SpecError

KNOWN_VERSIONS = range(0x021000, 0x021100)
"""librdkafka's versions that windrow is tested with, without the last byte: 2.16.

A version that pyproject.toml allows has to be listed here as well.
"""

ERROR_CB = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
"""A callback for errors. Its arguments: the client, the error, the reason, the opaque pointer."""

TOKEN_CB = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
"""Arguments: the client, `sasl.oauthbearer.config`, the opaque pointer."""

LOG_CB = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
"""A callback for the log. Its arguments: the client, the syslog level, the facility, the line."""

PRODUCER, CONSUMER = 0, 1
TEXT_SIZE = 512
"""Size in bytes of a buffer for the reason why a call failed."""


class TopicPartitionElement(ctypes.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("private", ctypes.c_void_p),
    )


class TopicPartitionList(ctypes.Structure):
    """rd_kafka_topic_partition_list_t."""

    _fields_ = (
        ("count", ctypes.c_int),
        ("size", ctypes.c_int),
        ("elements", ctypes.POINTER(TopicPartitionElement)),
    )


class MessageHead(ctypes.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


class Unusable(Exception):  # noqa: N818
    """The reason why librdkafka can't be called directly."""


class Api:
    """The functions of a loaded library, with their types."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Looks up each function.

        Raises:
            Unusable: the library doesn't have all of them.
        """
        self.library = library
        pointer, text, integer, size = (
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_size_t,
        )
        self.version = self._bound("version", integer)
        self.conf_new = self._bound("conf_new", pointer)
        self.conf_destroy = self._bound("conf_destroy", None, pointer)
        self.conf_set = self._bound("conf_set", integer, pointer, text, text, text, size)
        self.conf_set_error_cb = self._bound("conf_set_error_cb", None, pointer, pointer)
        self.conf_set_log_cb = self._bound("conf_set_log_cb", None, pointer, pointer)
        self.conf_enable_sasl_queue = self._bound("conf_enable_sasl_queue", None, pointer, integer)
        self.conf_set_oauthbearer_token_refresh_cb = self._bound(
            "conf_set_oauthbearer_token_refresh_cb", None, pointer, pointer
        )
        self.sasl_background_callbacks_enable = self._bound(
            "sasl_background_callbacks_enable", pointer, pointer
        )
        self.oauthbearer_set_token = self._bound(
            "oauthbearer_set_token",
            integer,
            *(pointer, text, ctypes.c_int64, text),
            *(ctypes.POINTER(text), size, text, size),
        )
        self.oauthbearer_set_token_failure = self._bound(
            "oauthbearer_set_token_failure", integer, pointer, text
        )
        self.error_string = self._bound("error_string", text, pointer)
        self.error_destroy = self._bound("error_destroy", None, pointer)
        self.new = self._bound("new", pointer, integer, pointer, text, size)
        self.destroy_flags = self._bound("destroy_flags", None, pointer, integer)
        self.name = self._bound("name", text, pointer)
        self.last_error = self._bound("last_error", integer)
        self.err2str = self._bound("err2str", text, integer)
        self.set_log_queue = self._bound("set_log_queue", integer, pointer, pointer)
        self.poll_set_consumer = self._bound("poll_set_consumer", integer, pointer)
        self.queue_get_consumer = self._bound("queue_get_consumer", pointer, pointer)
        self.queue_get_main = self._bound("queue_get_main", pointer, pointer)
        self.queue_destroy = self._bound("queue_destroy", None, pointer)
        self.queue_poll = self._bound("queue_poll", pointer, pointer, integer)
        self.assign = self._bound("assign", integer, pointer, pointer)
        self.position = self._bound("position", integer, pointer, pointer)
        self.consumer_close = self._bound("consumer_close", integer, pointer)
        self.consume_batch_queue = self._bound(
            "consume_batch_queue", ctypes.c_ssize_t, pointer, integer, pointer, size
        )
        self.topic_partition_list_new = self._bound(
            "topic_partition_list_new", ctypes.POINTER(TopicPartitionList), integer
        )
        self.topic_partition_list_destroy = self._bound(
            "topic_partition_list_destroy", None, pointer
        )
        self.topic_partition_list_add = self._bound(
            "topic_partition_list_add",
            ctypes.POINTER(TopicPartitionElement),
            pointer,
            text,
            ctypes.c_int32,
        )
        self.topic_partition_set_leader_epoch = self._bound(
            "topic_partition_set_leader_epoch", None, pointer, ctypes.c_int32
        )
        self.topic_new = self._bound("topic_new", pointer, pointer, text, pointer)
        self.topic_name = self._bound("topic_name", text, pointer)
        self.topic_destroy = self._bound("topic_destroy", None, pointer)
        self.message_errstr = self._bound("message_errstr", text, pointer)
        self.message_headers = self._bound("message_headers", integer, pointer, pointer)
        self.header_get_last = self._bound(
            "header_get_last", integer, pointer, text, pointer, pointer
        )
        self.event_destroy = self._bound("event_destroy", None, pointer)
        self.event_message_array = self._bound("event_message_array", size, pointer, pointer, size)

    def address(self, name: str) -> int:
        """Returns the address of a function.

        Raises:
            Unusable: the library has no function of that name.
        """
        return ctypes.cast(self._function(name), ctypes.c_void_p).value or 0

    def _function(self, name: str) -> Any:
        try:
            return self.library[f"rd_kafka_{name}"]
        except AttributeError:
            raise Unusable(f"the library of confluent-kafka has no rd_kafka_{name}") from None

    def _bound(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        function = self._function(name)
        function.restype, function.argtypes = result, arguments
        return function  # type: ignore[no-any-return]


@cache
def library() -> Api:
    """Loads the librdkafka that confluent-kafka is linked with, once in a process.

    Raises:
        SpecError: windrow isn't tested with this version, or it can't be loaded.
    """
    try:
        return _load_api()
    except Unusable as why:
        raise SpecError(
            f"Kafka's client can't be used in this environment: {why}",
            "setup",
            "Install confluent-kafka's own wheel, of the version that windrow requires, where"
            " the tasks run too.",
        ) from None


def _load_api() -> Api:
    try:
        cdll = ctypes.CDLL(cimpl.__file__)
    except OSError as why:
        raise Unusable(
            f"the library of confluent-kafka can't be loaded: {type(why).__name__}"
        ) from None
    api = Api(cdll)
    version = api.version()
    if version >> 8 not in KNOWN_VERSIONS or version != confluent_kafka.libversion()[1]:
        raise Unusable(
            f"librdkafka {confluent_kafka.libversion()[0]} (0x{version:08x}) is not among the"
            " versions that windrow is tested with"
        )
    return api
