#pragma once

// Where in a stream a client is, so that one whose connection broke goes on behind it: the id of
// its last event, "<session>.<tokens>".

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardline {

struct StreamPlace {
  uint64_t session = 0;
  uint32_t tokens = 0;  // Whose text the client has.

  friend bool operator==(const StreamPlace&, const StreamPlace&) = default;
};

std::string PlaceText(const StreamPlace& place);
// Nothing for a text that is no place.
std::optional<StreamPlace> ParsePlace(std::string_view text);

// `events` ("data: …\n\n", one or more) with the place as the id of the last one: a client that
// has only some of them has not yet reached it.
std::string WithPlace(const StreamPlace& place, std::string events);

}  // namespace shardline
