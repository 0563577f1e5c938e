// The server over real sockets: what a client gets, and what the exchange is told of the client.

#include "coordinator/gateway/http_server.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/coordinator/gateway/http_fixture.h"
#include "tests/support/raw_http.h"

namespace shardline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RawAnswer;
using testing::RawHttp;
using ::testing::StartsWith;

TEST_F(HttpServerTest, ARequestIsAnsweredAndTheConnectionKept) {
  Start();
  RawHttp client = Connect();
  for (const char* body : {"one", "two", ""}) {
    ASSERT_TRUE(client.Send(Post("/echo?q", body)));
    const RawAnswer answer = client.ReadAnswer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, std::string("POST /echo?q ") + body);
  }
  EXPECT_EQ(server_->figures().connections, 1U);
  EXPECT_EQ(server_->figures().requests, 3U);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/hold?1") + Get("/echo?2") + Get("/hold?3") + Get("/echo?4")));
  const std::shared_ptr<HttpExchange> first = handler_.AwaitHeld();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->request().query, "1");
  first->Answer({.body = "1"});
  EXPECT_EQ(client.ReadAnswer().body, "1");
  EXPECT_EQ(client.ReadAnswer().body, "GET /echo?2 ");
  handler_.AwaitHeld()->Answer({.body = "3"});
  EXPECT_EQ(client.ReadAnswer().body, "3");
  EXPECT_EQ(client.ReadAnswer().body, "GET /echo?4 ");
}

TEST_F(HttpServerTest, AThousandPipelinedRequestsAreAllAnswered) {
  Start();
  RawHttp client = Connect();
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += Get(absl::StrCat("/echo?", i));
  std::thread sender([&] { EXPECT_TRUE(client.Send(requests)); });
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(client.ReadAnswer().body, absl::StrCat("GET /echo?", i, " "));
  }
  sender.join();
}

TEST_F(HttpServerTest, TheClientsWishToCloseIsKept) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/echo", "Connection: close\r\n")));
  RawAnswer answer = client.ReadAnswer();
  EXPECT_EQ(answer.headers["connection"], "close");
  EXPECT_TRUE(client.AwaitEnd());

  RawHttp old = Connect();
  ASSERT_TRUE(old.Send("GET /echo HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(old.ReadAnswer().body, "GET /echo? ");
  EXPECT_TRUE(old.AwaitEnd());
}

TEST_F(HttpServerTest, AChunkedRequestIsRead) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(
      client.Send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"));
  ASSERT_TRUE(client.Send("lo\r\n0\r\n\r\n" + Get("/echo")));
  EXPECT_EQ(client.ReadAnswer().body, "POST /echo? hello");
  EXPECT_EQ(client.ReadAnswer().body, "GET /echo? ");
}

TEST_F(HttpServerTest, AClientThatWaitsForContinueIsToldTo) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(
      "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.Send("hi"));
  EXPECT_EQ(client.ReadAnswer().body, "POST /echo? hi");
}

TEST_F(HttpServerTest, ABodyThatWouldBeTooLongIsRefusedInsteadOfContinued) {
  Start({.body_bytes_max = 10});
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(
      "POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n"));
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.body, "refused: a body of more than 10 bytes");
  EXPECT_TRUE(client.AwaitEnd());
}

TEST_F(HttpServerTest, ARefusalIsHeardByAClientThatGoesOnSending) {
  Start({.body_bytes_max = 1000});
  RawHttp client = Connect();
  const std::string body(1 << 20, 'x');  // More than the buffers between them hold.
  std::thread sender([&] { EXPECT_TRUE(client.Send(Post("/echo", body))); });
  EXPECT_EQ(client.ReadAnswer().status, 413);
  sender.join();
  EXPECT_TRUE(client.AwaitEnd());
  EXPECT_EQ(server_->figures().requests, 0U);
  EXPECT_EQ(server_->figures().refused, 1U);
}

TEST_F(HttpServerTest, HeadIsAnsweredLikeGetLessTheBody) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send("HEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n" + Get("/echo")));
  RawAnswer head = client.ReadAnswer(/*has_body=*/false);
  EXPECT_EQ(head.headers["content-length"], "12");
  EXPECT_EQ(client.ReadAnswer().body, "GET /echo? ");
}

TEST_F(HttpServerTest, WhatIsNotHttpIsRefusedAndTheConnectionClosed) {
  Start();
  for (const char* bytes : {"GET / HTTP/1.1\nHost: h\n\n", "\x16\x03\x01\x02", "bad\r\n\r\n",
                            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n"
                            "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /echo HTTP/1.1\r\n"}) {
    RawHttp client = Connect();
    ASSERT_TRUE(client.Send(std::string(bytes) + std::string(1, '\0')));
    const RawAnswer answer = client.ReadAnswer();
    EXPECT_EQ(answer.status, 400) << bytes;
    EXPECT_THAT(answer.body, StartsWith("refused: ")) << bytes;
    EXPECT_TRUE(client.AwaitEnd()) << bytes;
  }
  EXPECT_EQ(server_->figures().requests, 0U);
}

TEST_F(HttpServerTest, EachPieceOfAStreamArrivesByItself) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  exchange->Begin({.headers = {{"content-type", "text/event-stream; charset=utf-8"}}});
  RawAnswer head = client.ReadHead();
  EXPECT_EQ(head.headers["transfer-encoding"], "chunked");
  EXPECT_EQ(head.headers["content-type"], "text/event-stream; charset=utf-8");
  for (const char* piece : {"data: 1\n\n", "data: 2\n\n", "data: 3\n\n"}) {
    ASSERT_TRUE(exchange->Write(piece));  // Nothing follows until this one has been read.
    EXPECT_EQ(client.ReadChunk(), piece);
  }
  EXPECT_EQ(server_->figures().streams, 1U);
  exchange->Finish();
  EXPECT_EQ(client.ReadChunk(), "");
  EXPECT_EQ(server_->figures().streams, 0U);
  ASSERT_TRUE(client.Send(Get("/echo")));
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

TEST_F(HttpServerTest, AnAbortedStreamKeepsItsPiecesAndEndsWithoutItsLastChunk) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  exchange->Begin({.body = "one"});
  EXPECT_TRUE(exchange->Write("two"));
  exchange->Abort();
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_THAT(answer.chunks, ElementsAre("one", "two"));
  EXPECT_FALSE(answer.is_whole);
}

TEST_F(HttpServerTest, AnOldClientSeesAResetWhereAStreamIsCut) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.0\r\n\r\n"));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  exchange->Begin({.body = "one"});
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_EQ(client.Read(3), "one");
  exchange->Abort();
  EXPECT_FALSE(client.AwaitEnd()) << "a plain end would say that all is there";
}

TEST_F(HttpServerTest, ARequestThatIsLetGoClosesItsConnection) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/drop")));
  EXPECT_TRUE(client.AwaitEnd());
}

TEST_F(HttpServerTest, AClientThatHangsUpIsNoticedWhileItsAnswerIsComputed) {
  Start();
  RawHttp closing = Connect();
  ASSERT_TRUE(closing.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> whole = handler_.AwaitHeld();
  const GoneWatch closed(*whole);
  EXPECT_FALSE(closed.HasCome());
  closing.Close();
  EXPECT_TRUE(closed.Await());

  RawHttp resetting = Connect();
  ASSERT_TRUE(resetting.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> stream = handler_.AwaitHeld();
  stream->Begin({.body = "one"});
  const GoneWatch reset(*stream);
  resetting.Reset();
  EXPECT_TRUE(reset.Await());
  EXPECT_FALSE(stream->Write("two"));
  EXPECT_EQ(server_->figures().gone, 2U);
}

TEST_F(HttpServerTest, AClientThatHangsUpIsNoticedBehindRequestsThatWait) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/hold") + Get("/echo") + Get("/echo")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  const GoneWatch gone(*exchange);
  client.Close();
  EXPECT_TRUE(gone.Await());
}

TEST_F(HttpServerTest, AHalfClosedClientIsGoneButStillGetsAnAnswerThatComes) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  const GoneWatch gone(*exchange);
  client.CloseWriting();
  EXPECT_TRUE(gone.Await());
  exchange->Answer({.body = "all the same"});
  EXPECT_EQ(client.ReadAnswer().body, "all the same");
  EXPECT_TRUE(client.AwaitEnd());
}

TEST_F(HttpServerTest, AllThatAHalfClosedClientAskedForIsAnswered) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/echo?1") + Get("/echo?2") + "GET /echo?3 HT"));
  client.CloseWriting();
  EXPECT_EQ(client.ReadAnswer().body, "GET /echo?1 ");
  EXPECT_EQ(client.ReadAnswer().body, "GET /echo?2 ");
  EXPECT_TRUE(client.AwaitEnd());
}

TEST_F(HttpServerTest, ASlowReaderIsCutAtItsBoundAndSlowsNobody) {
  Start({.threads = 1, .stream_bytes_max = 64 * 1024});
  RawHttp slow = RawHttp::Connect(server_->port(), {.receive_buffer = 4096});
  ASSERT_TRUE(slow.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  exchange->Begin({});
  const std::string piece(1024, 'x');
  int taken = 0;
  while (taken < 100'000 && exchange->Write(piece)) ++taken;
  EXPECT_LT(taken, 1000) << "what is held of one client has a bound";
  // It is stuck now, and others are not.
  RawHttp other = Connect();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(other.Send(Get("/echo")));
    EXPECT_EQ(other.ReadAnswer().status, 200);
  }
  exchange->Finish();
  EXPECT_FALSE(slow.ReadAnswer().is_whole) << "a piece is missing";
}

TEST_F(HttpServerTest, AClientThatTakesNothingIsGoneAfterTheWriteTime) {
  Start({.write_time = absl::Milliseconds(50), .stream_bytes_max = 64 << 20});
  RawHttp slow = RawHttp::Connect(server_->port(), {.receive_buffer = 4096});
  ASSERT_TRUE(slow.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  exchange->Begin({});
  const GoneWatch gone(*exchange);
  EXPECT_TRUE(exchange->Write(std::string(8 << 20, 'x')));
  EXPECT_TRUE(gone.Await());
  EXPECT_FALSE(exchange->Write("more"));
}

TEST_F(HttpServerTest, AnExchangeMayOutliveItsServer) {
  Start();
  RawHttp client = Connect();
  ASSERT_TRUE(client.Send(Get("/hold")));
  const std::shared_ptr<HttpExchange> exchange = handler_.AwaitHeld();
  const GoneWatch gone(*exchange);
  exchange->Begin({});
  server_.reset();
  EXPECT_TRUE(gone.HasCome());
  EXPECT_FALSE(exchange->Write("late"));
  exchange->Finish();
}

TEST_F(HttpServerTest, AnErrorNamesTheAddress) {
  Start();
  const std::string taken = absl::StrCat("127.0.0.1:", server_->port());
  const auto second = HttpServer::Start({.listen = taken}, &handler_);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(taken));
  for (const char* listen : {"nonsense", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1"}) {
    const auto refused = HttpServer::Start({.listen = listen}, &handler_);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(listen));
  }
}

}  // namespace
}  // namespace shardline
