#pragma once

// Reads the fields of a protobuf message as they stand, without a generated class.
//
// Source: the protobuf encoding. Every error is kMalformedBundle: no peer is trusted to have sent a
// message at all.

#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"

namespace shardline {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

inline absl::Status Malformed(std::string_view what) {
  return MakeFailure(FailureKind::kMalformedBundle, what);
}

struct Field {
  uint32_t number = 0;
  WireType type = kVarint;
  uint64_t value = 0;      // kVarint, kFixed64.
  std::string_view bytes;  // kBytes.
};

// Walks the fields of a message that lies in one piece.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : bytes_(bytes) {}

  bool AtEnd() const { return bytes_.empty(); }

  absl::StatusOr<Field> Next() {
    SL_ASSIGN_OR_RETURN(const uint64_t tag, ReadVarint());
    Field field;
    if (tag >> 3 == 0 || tag > std::numeric_limits<uint32_t>::max()) {
      return Malformed("a field without a number");
    }
    field.number = static_cast<uint32_t>(tag >> 3);
    field.type = static_cast<WireType>(tag & 7);
    switch (field.type) {
      case kVarint: {
        SL_ASSIGN_OR_RETURN(field.value, ReadVarint());
        return field;
      }
      case kFixed64:
        return ReadFixed(field, sizeof(uint64_t));
      case kFixed32:
        return ReadFixed(field, sizeof(uint32_t));
      case kBytes: {
        SL_ASSIGN_OR_RETURN(const uint64_t size, ReadVarint());
        if (size > bytes_.size()) return Malformed("a field that is longer than its message");
        field.bytes = bytes_.substr(0, size);
        bytes_.remove_prefix(size);
        return field;
      }
    }
    return Malformed("a field of no known wire type");
  }

  absl::StatusOr<uint64_t> ReadVarint() {
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) return Malformed("the header ends inside a number");
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return Malformed("a number of more than 64 bits");
  }

 private:
  absl::StatusOr<Field> ReadFixed(Field field, size_t size) {
    if (size > bytes_.size()) return Malformed("a field that is longer than its message");
    std::memcpy(&field.value, bytes_.data(), size);
    bytes_.remove_prefix(size);
    return field;
  }

  std::string_view bytes_;
};

// Refuses a known field that comes twice or in another wire type; unknown fields are skipped, as
// proto3 asks.
class FieldSet {
 public:
  absl::Status Take(const Field& field, WireType type) {
    if (field.type != type) {
      return Malformed(absl::StrCat("field ", field.number, " has another wire type"));
    }
    const uint32_t bit = 1U << field.number;
    if ((seen_ & bit) != 0) return Malformed(absl::StrCat("field ", field.number, " comes twice"));
    seen_ |= bit;
    return absl::OkStatus();
  }

 private:
  uint32_t seen_ = 0;
};

}  // namespace shardline
