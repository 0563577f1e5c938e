#include "coordinator/transport/utf8_hold.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

TEST(Utf8Hold, ACharacterComesOutWhole) {
  Utf8Hold hold;
  EXPECT_EQ(hold.Push("\xE6"), "");
  EXPECT_EQ(hold.Push("\xAD"), "");
  EXPECT_EQ(hold.Push("\xAA!"), "\xE6\xAD\xAA!");
  EXPECT_EQ(hold.Flush(), "");
}

TEST(Utf8Hold, BytesThatCannotBecomeACharacterAreNotHeld) {
  for (const std::string bytes : {"\xC0", "\xC1", "\xF5", "\xFF", "\x80", "\xED\xA0", "\xE0\x80",
                                  "\xF0\x80", "\xF4\x90", "\xF0\x9F\x41"}) {
    Utf8Hold hold;
    EXPECT_EQ(hold.Push(bytes), bytes);
  }
}

TEST(Utf8Hold, AnUnfinishedTailComesOutAtTheEnd) {
  Utf8Hold hold;
  EXPECT_EQ(hold.Push("ab\xF0\x9F\x98"), "ab");
  EXPECT_EQ(hold.Flush(), "\xF0\x9F\x98");
}

TEST(Utf8Hold, NothingIsLostOrChangedWhateverTheCut) {
  std::mt19937 random(7);
  const std::string alphabet = "a\xC3\xA9\xE6\xAD\xAA\xF0\x9F\x98\x8A\x80\xFF\xED\xA0";
  for (int round = 0; round < 2000; ++round) {
    Utf8Hold hold;
    std::string in;
    std::string out;
    for (int i = 0; i < 8; ++i) {
      std::string piece;
      for (uint32_t k = random() % 4; k > 0; --k) piece += alphabet[random() % alphabet.size()];
      in += piece;
      out += hold.Push(piece);
      EXPECT_LE(in.size() - out.size(), 3u);
    }
    EXPECT_EQ(out + hold.Flush(), in);
  }
}

}  // namespace
}  // namespace shardline
