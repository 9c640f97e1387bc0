"""Confluent's own .proto files, which a registered schema may import.

Confluent's serializers bring these files and don't register them, so the registry doesn't
have them. Google's well-known types (`google/protobuf/*.proto`) come with the compiler,
its common types (`google/type/*.proto`) with their own package.
"""

from __future__ import annotations

from collections.abc import Mapping

_META = """\
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";

message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL = """\
syntax = "proto3";
package confluent.type;

message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
_VARIANT = """\
syntax = "proto3";
package confluent.type;

message Variant {
  bytes metadata = 1;
  bytes value = 2;
}
"""

CONFLUENT: Mapping[str, str] = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "confluent/type/variant.proto": _VARIANT,
    "confluent/types/decimal.proto": (
        'syntax = "proto3"; import public "confluent/type/decimal.proto";'
    ),
}
"""The texts of the files, by the names in `import`."""
