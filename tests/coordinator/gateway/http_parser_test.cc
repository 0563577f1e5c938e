#include "coordinator/gateway/http_parser.h"

#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using State = HttpParser::State;

constexpr HttpParserLimits kLimits = {.header_bytes_max = 512, .body_bytes_max = 1000};

struct Parsed {
  State state = State::kBlank;
  HttpParser::Refusal refusal;
  HttpRequest request;
  std::string left;
};

// Feeds `bytes` in pieces of `piece_bytes`.
Parsed Parse(std::string_view bytes, size_t piece_bytes = 1 << 20) {
  HttpParser parser(kLimits);
  Parsed parsed;
  for (size_t at = 0; at < bytes.size() && parsed.state != State::kRefused; at += piece_bytes) {
    parsed.left.append(bytes.substr(at, piece_bytes));
    parsed.state = parser.Feed(parsed.left);
  }
  if (parsed.state == State::kRefused) parsed.refusal = parser.refusal();
  if (parsed.state == State::kDone) parsed.request = parser.TakeRequest();
  return parsed;
}

int StatusOf(std::string_view bytes) {
  const Parsed parsed = Parse(bytes);
  // Seams between reads change nothing.
  const Parsed by_bytes = Parse(bytes, 1);
  EXPECT_EQ(by_bytes.state, parsed.state) << bytes;
  EXPECT_EQ(by_bytes.refusal.status, parsed.refusal.status) << bytes;
  return parsed.state == State::kRefused ? parsed.refusal.status : 0;
}

TEST(HttpParserTest, ARequestIsReadInFull) {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}}) {
    const Parsed parsed = Parse(
        "\r\nPOST /v1/a%20b%2Fc?x=%31 HTTP/1.1\r\nHost: here\r\nX-Many:  one \r\nx-many: two\r\n"
        "Content-Length: 5\r\n\r\nhello",
        piece);
    ASSERT_EQ(parsed.state, State::kDone) << piece;
    EXPECT_EQ(parsed.request.method, "POST");
    EXPECT_EQ(parsed.request.path, "/v1/a b/c");
    EXPECT_EQ(parsed.request.query, "x=%31");
    EXPECT_EQ(
        parsed.request.headers,
        (HttpHeaders{
            {"host", "here"}, {"x-many", "one"}, {"x-many", "two"}, {"content-length", "5"}}));
    EXPECT_EQ(parsed.request.body, "hello");
    EXPECT_EQ(parsed.left, "");
  }
}

TEST(HttpParserTest, AChunkedBodyIsPutTogetherAndItsTrailersAreNoHeaders) {
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{4096}}) {
    const Parsed parsed = Parse(
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        "5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nAuthorization: Bearer x\r\n\r\nGET",
        piece);
    ASSERT_EQ(parsed.state, State::kDone) << piece;
    EXPECT_EQ(parsed.request.body, "hello world");
    EXPECT_EQ(parsed.request.Header("authorization"), "");
  }
}

TEST(HttpParserTest, TheNextRequestStaysInTheInput) {
  const std::string first = "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n";
  const std::string second = "GET /2 HTTP/1.1\r\nHost: h\r\n\r\n";
  Parsed parsed = Parse(first + second);
  ASSERT_EQ(parsed.state, State::kDone);
  EXPECT_EQ(parsed.request.path, "/1");
  EXPECT_EQ(parsed.left, second);
}

TEST(HttpParserTest, TheFormMeantForProxiesNamesAPath) {
  EXPECT_EQ(Parse("GET http://host/a?b HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/a");
  EXPECT_EQ(Parse("GET http://host HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/");
  EXPECT_EQ(Parse("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "*");
}

TEST(HttpParserTest, WhatIsNotHttpIsRefused) {
  const std::string nul = std::string("GET / HTTP/1.1\r\nHost: h\r\nA: x") + '\0' + "y\r\n\r\n";
  const std::vector<std::string> faults = {
      nul,
      "GET / HTTP/1.1\nHost: h\n\n",
      "GET / HTTP/1.1\r\nHost: h\r\nA: x\r\n folded\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nA: x\ry\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nA : x\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n",
      "GET / HTTP/1.1\r\nHost h\r\n\r\n",
      "GET / HTTP/1.1\r\nA: b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
      "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET / FTP/1.1\r\nHost: h\r\n\r\n",
      "GET /\r\nHost: h\r\n\r\n",
      "GET / h\r\n\r\n",
      "G@T / HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET nowhere HTTP/1.1\r\nHost: h\r\n\r\n",
      "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET /%4 HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n",
  };
  for (const std::string& fault : faults) EXPECT_EQ(StatusOf(fault), 400) << fault;
}

TEST(HttpParserTest, ATlsHelloIsRefusedAtItsFirstNul) {
  EXPECT_EQ(StatusOf({"\x16\x03\x01\x02\x00\x01", 6}), 400);
}

TEST(HttpParserTest, ABodyHasOneLengthOnly) {
  const auto post = [](std::string_view fields, std::string_view body) {
    return "POST / HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n" + std::string(body);
  };
  EXPECT_EQ(StatusOf(post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n")),
            400);
  EXPECT_EQ(StatusOf(post("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "0\r\n\r\n")),
            400);
  EXPECT_EQ(StatusOf(post("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd")), 400);
  EXPECT_EQ(StatusOf(post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc")), 400);
  EXPECT_EQ(StatusOf(post("Content-Length: -1\r\n", "")), 400);
  EXPECT_EQ(StatusOf(post("Content-Length: 0x3\r\n", "abc")), 400);
  EXPECT_EQ(StatusOf(post("Content-Length: 99999999999999999999\r\n", "")), 400);
  EXPECT_EQ(StatusOf(post("Transfer-Encoding: gzip\r\n", "abc")), 400);
  EXPECT_EQ(StatusOf(post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")), 400);
  EXPECT_EQ(StatusOf(post("Transfer-Encoding: chunked\r\n", "zz\r\nabc\r\n")), 400);
  EXPECT_EQ(StatusOf(post("Transfer-Encoding: chunked\r\n", "3\nabc\r\n")), 400);
  EXPECT_EQ(StatusOf(post("Transfer-Encoding: chunked\r\n", "3,\r\nabc\r\n")), 400);
  EXPECT_EQ(StatusOf(post("Transfer-Encoding: chunked\r\n", "3;\"\r\nabc\r\n0\r\n\r\n")), 0);
  EXPECT_EQ(StatusOf(post("Transfer-Encoding: chunked\r\n", "3\r\nabcd\r\n0\r\n\r\n")), 400);
  EXPECT_EQ(StatusOf(post("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n")), 413);
  EXPECT_EQ(StatusOf("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
}

TEST(HttpParserTest, OtherVersionsAreNamedAsSuch) {
  EXPECT_EQ(StatusOf("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(StatusOf("GET / HTTP/0.9\r\nHost: h\r\n\r\n"), 505);
  EXPECT_EQ(StatusOf("GET / HTTP/1.0\r\n\r\n"), 0);
}

TEST(HttpParserTest, ALongHeadIsRefusedBeforeItsEnd) {
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(600, 'x')), 431);
  EXPECT_EQ(StatusOf("GET /" + std::string(600, 'x')), 431);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(400, 'x') + "\r\n\r\n"), 0);
}

TEST(HttpParserTest, ALongBodyIsRefusedByWhatItAnnounces) {
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n"), 413);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n" +
                     std::string(1000, 'x')),
            0);
  const std::string chunked = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string half = "1f4\r\n" + std::string(500, 'x') + "\r\n";
  EXPECT_EQ(StatusOf(chunked + half + half + "0\r\n\r\n"), 0);
  EXPECT_EQ(StatusOf(chunked + half + half + "1\r\n"), 413);
}

TEST(HttpParserTest, ChunkLinesAndTrailersAreBoundedToo) {
  const std::string chunked = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(StatusOf(chunked + "1;a=" + std::string(600, 'x')), 431);
  EXPECT_EQ(StatusOf(chunked + "0\r\nA: " + std::string(600, 'x')), 431);
}

TEST(HttpParserTest, AnAnnouncedBodyCostsNothingUntilItComes) {
  HttpParser parser({.header_bytes_max = 512, .body_bytes_max = size_t{1} << 60});
  std::string input = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1152921504606846976\r\n\r\n";
  EXPECT_EQ(parser.Feed(input), State::kBody);
}

TEST(HttpParserTest, TheClientsWishesAreKnownOnceTheHeadIsWhole) {
  HttpParser parser(kLimits);
  std::string input =
      "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: 100-Continue\r\n"
      "Content-Length: 3\r\n\r\n";
  ASSERT_EQ(parser.Feed(input), State::kBody);
  EXPECT_TRUE(parser.expects_continue());
  EXPECT_TRUE(parser.is_http11());
  EXPECT_FALSE(parser.keep_alive());
  input = "abc";
  ASSERT_EQ(parser.Feed(input), State::kDone);
}

TEST(HttpParserTest, ARefusalSaysWhatItsLimitIs) {
  EXPECT_THAT(Parse("GET /" + std::string(600, 'x')).refusal.reason, HasSubstr("512 bytes"));
  EXPECT_THAT(Parse("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n").refusal.reason,
              HasSubstr("1000 bytes"));
}

}  // namespace
}  // namespace shardline
