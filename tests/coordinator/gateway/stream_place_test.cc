#include "coordinator/gateway/stream_place.h"

#include "gtest/gtest.h"

namespace shardline {
namespace {

TEST(StreamPlace, IsReadAsItIsWritten) {
  const StreamPlace place{.session = 18446744073709551615u, .tokens = 4294967295u};
  EXPECT_EQ(ParsePlace(PlaceText(place)), place);
  EXPECT_EQ(ParsePlace("7.0"), (StreamPlace{.session = 7, .tokens = 0}));
}

TEST(StreamPlace, WhatIsNoneIsNone) {
  for (const char* text : {"", ".", "7", "7.", ".3", "-7.3", "7.-3", "+7.3", " 7.3", "7.3 ",
                           "7.3.1", "7.4294967296", "18446744073709551616.0", "seven.3"}) {
    EXPECT_FALSE(ParsePlace(text).has_value()) << text;
  }
}

TEST(StreamPlace, IsTheIdOfTheLastEventAlone) {
  const StreamPlace place{.session = 7, .tokens = 3};
  EXPECT_EQ(WithPlace(place, "data: {}\n\n"), "id: 7.3\ndata: {}\n\n");
  EXPECT_EQ(WithPlace(place, "data: {1}\n\ndata: {2}\n\n"), "data: {1}\n\nid: 7.3\ndata: {2}\n\n");
}

TEST(StreamPlace, NothingToSayHasNoPlace) {
  EXPECT_EQ(WithPlace({.session = 7, .tokens = 3}, ""), "");
}

}  // namespace
}  // namespace shardline
