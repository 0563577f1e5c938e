// What the server does to those who take too much of it: bytes, time, connections; and how it ends.

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/gateway/http_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/gateway/http_fixture.h"
#include "tests/support/raw_http.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using testing::RawAnswer;
using testing::RawHttp;
using HttpLimitsTest = HttpServerTest;

TEST_F(HttpLimitsTest, AHeadOverTheLimitIsRefused) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/echo", "X-Long: " + std::string(8200, 'x') + "\r\n")));
  EXPECT_EQ(client.ReadAnswer().status, 431);
  EXPECT_TRUE(client.AwaitEnd());

  RawHttp endless = Connect();
  ASSERT_TRUE(endless.Send("GET /" + std::string(9000, 'x')));
  EXPECT_EQ(endless.ReadAnswer().status, 431);
}

TEST_F(HttpLimitsTest, ABodyOverTheLimitIsRefused) {
  Start({.body_bytes_max = 100});
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Post("/echo", std::string(100, 'x'))));
  EXPECT_EQ(client.ReadAnswer().status, 200);
  ASSERT_TRUE(
      client.Send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n"));
  EXPECT_EQ(client.ReadAnswer().status, 413);
  EXPECT_TRUE(client.AwaitEnd());
}

TEST_F(HttpLimitsTest, AHeadThatDripsIsTimedFromItsFirstByte) {
  Start({.header_bytes_max = 8 << 20, .header_time = absl::Milliseconds(100)});
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost: h\r\n"));
  // Every further byte comes in time for itself; it does not help.
  while (client.Send("A: b\r\n") && server_->figures().refused == 0) std::this_thread::yield();
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("408"));
}

TEST_F(HttpLimitsTest, ABodyThatDripsIsTimedAsAWhole) {
  Start({.body_time = absl::Milliseconds(100)});
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 30000000\r\n\r\n"));
  while (client.Send("x") && server_->figures().refused == 0) std::this_thread::yield();
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("408"));
}

TEST_F(HttpLimitsTest, AnIdleConnectionIsClosedWithoutAWord) {
  Start({.idle_time = absl::Milliseconds(50)});
  RawHttp silent = Connect();
  RawHttp used = Connect();
  ASSERT_TRUE(used.Send(Get("/echo")));
  EXPECT_EQ(used.ReadAnswer().status, 200);
  EXPECT_TRUE(silent.AwaitEnd());
  EXPECT_TRUE(used.AwaitEnd());
  EXPECT_EQ(server_->figures().refused, 0U);
}

TEST_F(HttpLimitsTest, TheTimesOfARequestDoNotBindItsAnswer) {
  constexpr absl::Duration kShort = absl::Milliseconds(20);
  Start({.header_time = kShort, .body_time = kShort, .idle_time = kShort});
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  ASSERT_NE(exchange, nullptr);
  RawHttp idle = Connect();
  EXPECT_TRUE(idle.AwaitEnd());  // By now all these times have passed.
  RawHttp idle_again = Connect();
  EXPECT_TRUE(idle_again.AwaitEnd());
  exchange->Answer({.body = "late"});
  EXPECT_EQ(client.ReadAnswer().body, "late");
}

TEST_F(HttpLimitsTest, ConnectionsOverTheLimitAreToldSo) {
  Start({.connections_max = 2});
  RawHttp first = Connect();
  RawHttp second = Connect();
  ASSERT_TRUE(AwaitFigures([](const HttpFigures& f) { return f.connections == 2; }));
  RawHttp third = Connect();
  ASSERT_TRUE(third.Send(Get("/echo")));
  const RawAnswer answer = third.ReadAnswer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, "refused: too many connections");
  EXPECT_TRUE(third.AwaitEnd());
  third.Close();
  second.Close();
  ASSERT_TRUE(AwaitFigures([](const HttpFigures& f) { return f.connections == 1; }));
  RawHttp fourth = Connect();
  ASSERT_TRUE(fourth.Send(Get("/echo")));
  EXPECT_EQ(fourth.ReadAnswer().status, 200);
}

TEST_F(HttpLimitsTest, AFloodOfConnectionsIsDroppedBeyondTheRefusals) {
  Start({.connections_max = 1});
  std::vector<RawHttp> clients;
  for (int i = 0; i < 100; ++i) clients.push_back(Connect());
  EXPECT_FALSE(clients.back().ok() && clients.back().Send(Get("/echo")) &&
               clients.back().ReadAnswer().status != 0);
  EXPECT_LE(server_->figures().connections, 65U);
}

TEST_F(HttpLimitsTest, AServerThatStopsClosesIdleConnectionsAndFinishesTheRest) {
  Start();
  RawHttp idle = Connect();
  RawHttp whole = Connect();
  RawHttp streaming = Connect();
  RawHttp half_sent = Connect();
  ASSERT_TRUE(whole.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> answer = handler_.AwaitHeld();
  ASSERT_TRUE(streaming.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> stream = handler_.AwaitHeld();
  stream->Begin({.body = "one"});
  ASSERT_TRUE(half_sent.Send(Post("/echo", "") + "GET /ec"));
  EXPECT_EQ(half_sent.ReadAnswer().status, 200);
  ASSERT_TRUE(AwaitFigures([](const HttpFigures& f) { return f.connections == 4; }));

  server_->StopAccepting();
  EXPECT_TRUE(idle.AwaitEnd());
  EXPECT_FALSE(Connect().ok());
  answer->Answer({.body = "whole"});
  RawAnswer got = whole.ReadAnswer();
  EXPECT_EQ(got.body, "whole");
  EXPECT_EQ(got.headers["connection"], "close");
  EXPECT_TRUE(whole.AwaitEnd());
  EXPECT_TRUE(stream->Write("two"));
  stream->Finish();
  EXPECT_TRUE(streaming.ReadAnswer().is_whole);
  EXPECT_TRUE(streaming.AwaitEnd());
  ASSERT_TRUE(half_sent.Send("ho HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_EQ(half_sent.ReadAnswer().headers["connection"], "close");
}

TEST_F(HttpLimitsTest, AShutdownWaitsForAnswersUnderWay) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  const GoneWatch gone(*exchange);
  std::thread answering([&] {
    while (Connect().ok()) std::this_thread::yield();  // Until it no longer listens.
    exchange->Begin({});
    EXPECT_EQ(client.ReadHead().status, 200);
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(exchange->Write("piece"));
      EXPECT_EQ(client.ReadChunk(), "piece");
    }
    EXPECT_FALSE(gone.HasCome());
    exchange->Finish();
    EXPECT_EQ(client.ReadChunk(), "");
    client.Close();
  });
  server_->Shutdown(absl::InfiniteDuration());
  answering.join();
  EXPECT_EQ(server_->figures().connections, 0U);
}

TEST_F(HttpLimitsTest, AShutdownHangsUpAtItsLimit) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  exchange->Begin({.body = "one"});
  const GoneWatch gone(*exchange);
  server_->Shutdown(absl::Milliseconds(50));
  EXPECT_TRUE(gone.HasCome());
  EXPECT_FALSE(client.ReadAnswer().is_whole);
  EXPECT_EQ(server_->figures().connections, 0U);
}

TEST_F(HttpLimitsTest, AShutdownWithNothingUnderWayDoesNotWait) {
  Start();
  RawHttp idle = Connect();
  ASSERT_TRUE(AwaitFigures([](const HttpFigures& f) { return f.connections == 1; }));
  std::thread reader([&] {
    EXPECT_TRUE(idle.AwaitEnd());
    idle.Close();
  });
  server_->Shutdown(absl::InfiniteDuration());
  reader.join();
}

}  // namespace
}  // namespace shardline
