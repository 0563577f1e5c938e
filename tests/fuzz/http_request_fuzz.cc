// Any bytes as a request: the parser ends in a request that keeps its promises or in a refusal with
// a status of its own, and where the reads of the socket cut the bytes makes no difference.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "base/check.h"
#include "coordinator/gateway/http_parser.h"

namespace shardline {
namespace {

constexpr HttpParserLimits kLimits = {.header_bytes_max = 256, .body_bytes_max = 512};

struct Outcome {
  HttpParser::State state = HttpParser::State::kBlank;
  int status = 0;
  HttpRequest request;
  std::string left;
};

// Feeds pieces of `piece_bytes`, as a connection does: not after the end of a request.
Outcome Parse(std::string_view bytes, size_t piece_bytes) {
  HttpParser parser(kLimits);
  Outcome outcome;
  while (!bytes.empty()) {
    outcome.left.append(bytes.substr(0, piece_bytes));
    bytes.remove_prefix(std::min(piece_bytes, bytes.size()));
    outcome.state = parser.Feed(outcome.left);
    if (outcome.state == HttpParser::State::kDone) break;
    if (outcome.state == HttpParser::State::kRefused) break;
    SL_CHECK(outcome.left.size() <= kLimits.header_bytes_max);
  }
  if (outcome.state == HttpParser::State::kRefused) outcome.status = parser.refusal().status;
  if (outcome.state == HttpParser::State::kDone) {
    outcome.request = parser.TakeRequest();
    outcome.left.append(bytes);
  }
  return outcome;
}

void CheckRequest(const HttpRequest& request) {
  SL_CHECK(!request.method.empty());
  SL_CHECK(request.path.starts_with('/') || request.path == "*");
  SL_CHECK(request.path.find('\0') == std::string::npos);
  SL_CHECK(request.body.size() <= kLimits.body_bytes_max);
  for (const auto& [name, value] : request.headers) {
    SL_CHECK(!name.empty());
    SL_CHECK(std::none_of(name.begin(), name.end(), absl::ascii_isupper));
    SL_CHECK(value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
  }
}

void Try(std::string_view bytes, size_t piece_bytes) {
  const Outcome whole = Parse(bytes, bytes.size());
  const Outcome pieces = Parse(bytes, piece_bytes);
  SL_CHECK(whole.state == pieces.state);
  SL_CHECK(whole.status == pieces.status, whole.status, " and ", pieces.status);
  if (whole.state == HttpParser::State::kRefused) {
    SL_CHECK(whole.status == 400 || whole.status == 413 || whole.status == 431 ||
             whole.status == 505);
  }
  if (whole.state != HttpParser::State::kDone) return;
  CheckRequest(whole.request);
  SL_CHECK(whole.left == pieces.left);
  SL_CHECK(whole.request.body == pieces.request.body);
  SL_CHECK(whole.request.headers == pieces.request.headers);
}

}  // namespace
}  // namespace shardline

// The first byte says how long the pieces are.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  shardline::Try(bytes, 1 + data[0] % 64);
  return 0;
}
