#include "proto/wire/message_conversion.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/failure.h"

namespace shardline {
namespace {

constexpr int32_t kLayersMax = 65536;

}  // namespace

bool IsValidNodeId(std::string_view text) {
  if (text.empty() || text.size() > kNodeIdBytesMax) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

v1::LayerRange ToProto(const LayerRange& range) {
  v1::LayerRange message;
  message.set_begin(range.begin);
  message.set_end(range.end);
  return message;
}

absl::StatusOr<LayerRange> FromProto(const v1::LayerRange& range) {
  const bool ordered = 0 <= range.begin() && range.begin() <= range.end();
  if (!ordered || range.end() > kLayersMax) {
    return MakeFailure(
        FailureKind::kInvalidRequest,
        absl::StrCat("layers: [", range.begin(), ", ", range.end(), ") is no range of layers"));
  }
  return LayerRange{.begin = range.begin(), .end = range.end()};
}

}  // namespace shardline
