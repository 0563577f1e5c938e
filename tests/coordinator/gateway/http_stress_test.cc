// Many streams at once, and clients and servers that go in the middle of it.

#include <malloc.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/gateway/http_server.h"
#include "gtest/gtest.h"
#include "tests/coordinator/gateway/http_fixture.h"
#include "tests/support/raw_http.h"

namespace shardline {
namespace {

using testing::RawHttp;

class HttpStressTest : public HttpServerTest {
 protected:
  HttpStressTest() {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
};

TEST_F(HttpStressTest, AThousandStreamsAreHeldInBoundedMemoryAndOneThatStopsReadingSlowsNone) {
  constexpr int kStreams = 1000;
  constexpr size_t kBytesAStreamMax = 24 * 1024;  // Client and exchange of this process included.
  Start({.stream_bytes_max = 64 * 1024});
  std::vector<RawHttp> clients;
  std::vector<std::shared_ptr<HttpExchange>> streams;
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(RawHttp::Connect(server_->port(), {.receive_buffer = 4096}));
    ASSERT_TRUE(clients.back().Send(Get("/hold")));
    streams.push_back(handler_.AwaitHeld());
    ASSERT_NE(streams.back(), nullptr);
    streams.back()->Begin({.headers = {{"content-type", "text/event-stream"}}});
    ASSERT_EQ(clients.back().ReadHead().status, 200);
  }
  const size_t bytes_a_stream = (mallinfo2().uordblks - before) / kStreams;
  std::printf("%zu bytes an idle stream\n", bytes_a_stream);
  EXPECT_LT(bytes_a_stream, kBytesAStreamMax);

  while (streams[0]->Write(std::string(4096, 'x'))) {
  }
  for (int round = 0; round < 5; ++round) {
    const std::string piece = absl::StrCat("data: ", round, "\n\n");
    for (int i = 1; i < kStreams; ++i) ASSERT_TRUE(streams[i]->Write(piece)) << i;
    for (int i = 1; i < kStreams; ++i) ASSERT_EQ(clients[i].ReadChunk(), piece) << i;
  }
  EXPECT_EQ(server_->figures().streams, static_cast<uint64_t>(kStreams));
  for (const auto& stream : streams) stream->Finish();
  for (int i = 1; i < kStreams; ++i) ASSERT_EQ(clients[i].ReadChunk(), "") << i;
}

// Each thread asks for streams and leaves them in one of the ways there are.
void AskAndLeave(int port, int seed, int times) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (int i = 0; i < times; ++i) {
    RawHttp client = RawHttp::Connect(port);
    if (!client.ok()) return;
    (void)client.Send(Get("/hold"));
    switch (random() % 5) {
      case 0:
        client.Close();
        break;
      case 1:
        client.Reset();
        break;
      case 2:
        client.CloseWriting();
        client.Drain();
        break;
      case 3:
        (void)client.ReadHead();
        client.Close();
        break;
      default:
        client.Drain();
    }
  }
}

// Answers what is held, and ends it in one of the ways there are; until a null is held.
void AnswerAndEnd(FakeHandler& handler, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  while (const std::shared_ptr<HttpExchange> exchange = handler.AwaitHeld()) {
    const auto is_gone = std::make_shared<std::atomic<bool>>(false);
    exchange->OnGone([is_gone] { *is_gone = true; });
    if (random() % 4 == 0) {
      exchange->Answer({.body = "whole"});
      continue;
    }
    exchange->Begin({});
    for (int i = 0; i < 20 && !*is_gone && exchange->Write("piece"); ++i) {
    }
    switch (random() % 3) {
      case 0:
        exchange->Abort();
        break;
      case 1:
        exchange->Finish();
        break;
      default:  // Let go.
        break;
    }
  }
}

TEST_F(HttpStressTest, ClientsMayLeaveAtAnyMomentAndTheServerToo) {
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    const bool ends_under_way = round == kRounds - 1;
    Start({.idle_time = absl::Milliseconds(50)});
    std::vector<std::thread> answering;
    for (int i = 0; i < 2; ++i) {
      answering.emplace_back([this, i] { AnswerAndEnd(handler_, i); });
    }
    std::vector<std::thread> asking;
    for (int i = 0; i < 4; ++i) {
      asking.emplace_back(
          [port = server_->port(), seed = 10 * round + i] { AskAndLeave(port, seed, 100); });
    }
    if (ends_under_way) {
      ASSERT_TRUE(AwaitFigures([](const HttpFigures& f) { return f.requests > 50; }));
    } else {
      for (std::thread& thread : asking) thread.join();
    }
    server_->Shutdown(absl::Milliseconds(10));
    if (ends_under_way) {
      for (std::thread& thread : asking) thread.join();
    }
    for (size_t i = 0; i < answering.size(); ++i) handler_.Hold(nullptr);
    for (std::thread& thread : answering) thread.join();
    EXPECT_EQ(server_->figures().connections, 0U);
    EXPECT_EQ(server_->figures().streams, 0U);
    server_.reset();
  }
}

}  // namespace
}  // namespace shardline
