#include "coordinator/gateway/stream_place.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace shardline {
namespace {

template <typename Number>
bool ReadNumber(std::string_view text, Number* out) {
  // SimpleAtoi takes signs and spaces, too.
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos) return false;
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), out);
}

}  // namespace

std::string PlaceText(const StreamPlace& place) {
  return absl::StrCat(place.session, ".", place.tokens);
}

std::optional<StreamPlace> ParsePlace(std::string_view text) {
  StreamPlace place;
  const size_t dot = text.find('.');
  if (dot == text.npos || !ReadNumber(text.substr(0, dot), &place.session) ||
      !ReadNumber(text.substr(dot + 1), &place.tokens)) {
    return std::nullopt;
  }
  return place;
}

std::string WithPlace(const StreamPlace& place, std::string events) {
  if (events.empty()) return events;
  constexpr std::string_view kBoundary = "\n\n";
  size_t last = 0;
  if (events.size() > kBoundary.size()) {
    const size_t before = events.rfind(kBoundary, events.size() - kBoundary.size() - 1);
    if (before != events.npos) last = before + kBoundary.size();
  }
  events.insert(last, absl::StrCat("id: ", PlaceText(place), "\n"));
  return events;
}

}  // namespace shardline
