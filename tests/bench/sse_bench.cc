// Streams of the HTTP server: what one costs that is held, and what a piece costs beside a plain
// send of the same bytes on as many sockets.
//
//   sse_bench

#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "coordinator/gateway/http_outbox.h"
#include "coordinator/gateway/http_server.h"
#include "tests/bench/floors.h"

namespace shardline::bench {
namespace {

constexpr int kPieces = 40;
// A chunk of a chat answer with one token.
const std::string kPiece = "data: " + std::string(230, 'x') + "\n\n";
const std::string kChunk =
    "ee\r\n" + kPiece + "\r\n";  // As it goes over the wire: 6 + 230 + 2 bytes.
const HttpHeaders kStreamHeaders = {{"content-type", "text/event-stream; charset=utf-8"}};

class StreamHandler : public HttpHandler {
 public:
  void OnRequest(std::shared_ptr<HttpExchange> exchange) override {
    exchange->Begin({.headers = kStreamHeaders});
    absl::MutexLock lock(&mu_);
    streams_.push_back(std::move(exchange));
  }
  HttpResponse Refusal(int status, std::string_view) override { return {.status = status}; }

  // All of them, once there are `count`.
  std::vector<std::shared_ptr<HttpExchange>> Await(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto all = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return streams_.size() >= count; };
    mu_.Await(absl::Condition(&all));
    return std::exchange(streams_, {});
  }

 private:
  absl::Mutex mu_;
  std::vector<std::shared_ptr<HttpExchange>> streams_ ABSL_GUARDED_BY(mu_);
};

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  SL_CHECK(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

// Reads whatever comes on many sockets, on a thread of its own.
class Drain {
 public:
  explicit Drain(std::vector<int> sockets)
      : sockets_(std::move(sockets)), epoll_(epoll_create1(0)) {
    for (const int fd : sockets_) {
      epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
      epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    }
    thread_ = std::thread([this] { Run(); });
  }
  ~Drain() {
    stop_ = true;
    thread_.join();
    for (const int fd : sockets_) close(fd);
    close(epoll_);
  }
  // Asleep until so many have come: waiting must not count as CPU time.
  void AwaitBytes(uint64_t bytes) {
    has_come_ = false;
    wanted_ = bytes;
    if (bytes_ < bytes) has_come_.wait(false);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  void Run() {
    std::vector<epoll_event> events(256);
    std::vector<char> buffer(64 * 1024);
    while (!stop_) {
      const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 10);
      for (int i = 0; i < count; ++i) {
        const ssize_t got =
            read(events[static_cast<size_t>(i)].data.fd, buffer.data(), buffer.size());
        if (got > 0) bytes_ += static_cast<uint64_t>(got);
      }
      if (bytes_ < wanted_) continue;
      has_come_ = true;
      has_come_.notify_one();
    }
  }

  const std::vector<int> sockets_;
  const int epoll_;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<uint64_t> wanted_ = UINT64_MAX;
  std::atomic<bool> has_come_ = false;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

struct Cost {
  double bytes = 0;  // Of an idle stream, on the heap of the server.
  double us = 0;     // CPU time of a piece, its reader included.
};

// Of an answer of StreamHandler.
size_t HeadBytes() { return RenderHead({.headers = kStreamHeaders}, {.is_chunked = true}).size(); }

Cost HttpCost(int stream_count) {
  StreamHandler handler;
  const auto server = HttpServer::Start({.connections_max = 10'000}, &handler);
  SL_CHECK(server.ok(), server.status().ToString());
  std::vector<int> sockets;
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < stream_count; ++i) {
    sockets.push_back(Connect((*server)->port()));
    const std::string_view request = "GET / HTTP/1.1\r\nHost: bench\r\n\r\n";
    SL_CHECK(send(sockets.back(), request.data(), request.size(), 0) ==
             static_cast<ssize_t>(request.size()));
  }
  const auto streams = handler.Await(static_cast<size_t>(stream_count));
  Cost cost = {.bytes = static_cast<double>(mallinfo2().uordblks - before) / stream_count};
  Drain drain(std::move(sockets));
  const uint64_t chunk_bytes = kChunk.size() * streams.size();
  drain.AwaitBytes(HeadBytes() * streams.size());
  uint64_t wanted = drain.bytes();
  const double seconds = CpuSecondsOf([&] {
    for (int piece = 0; piece < kPieces; ++piece) {
      for (const auto& stream : streams) SL_CHECK(stream->Write(kPiece));
      wanted += chunk_bytes;
      drain.AwaitBytes(wanted);
    }
  });
  cost.us = seconds * 1e6 / (static_cast<double>(kPieces) * stream_count);
  for (const auto& stream : streams) stream->Finish();
  return cost;
}

// The floor: the same bytes sent on as many sockets, by one loop.
double PlainCost(int stream_count) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  SL_CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
  SL_CHECK(listen(listener, 128) == 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::vector<int> clients;
  std::vector<int> streams;
  for (int i = 0; i < stream_count; ++i) {
    clients.push_back(Connect(ntohs(address.sin_port)));
    streams.push_back(accept(listener, nullptr, nullptr));
  }
  double seconds = 0;
  {
    Drain drain(std::move(clients));
    seconds = CpuSecondsOf([&] {
      for (int piece = 1; piece <= kPieces; ++piece) {
        for (const int stream : streams) {
          SL_CHECK(send(stream, kChunk.data(), kChunk.size(), MSG_NOSIGNAL) ==
                   static_cast<ssize_t>(kChunk.size()));
        }
        drain.AwaitBytes(kChunk.size() * streams.size() * static_cast<uint64_t>(piece));
      }
    });
  }
  for (const int stream : streams) close(stream);
  close(listener);
  return seconds * 1e6 / (static_cast<double>(kPieces) * stream_count);
}

void Run() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  Cost last;
  double ratio = 0;
  for (const int stream_count : {1000, 5000}) {
    const double plain = PlainCost(stream_count);
    last = HttpCost(stream_count);
    ratio = last.us / plain;
    std::printf(
        "sse_streams: %d held, %.0f bytes each; a piece takes %.1f us, a plain send %.1f us\n",
        stream_count, last.bytes, last.us, plain);
  }
  std::printf("figure sse_streams 5000 streams (aim 1000)\n");
  std::printf("figure sse_stream_bytes %.0f bytes (aim 16384)\n", last.bytes);
  std::printf("figure sse_piece_over_send %.2f ratio (aim 3)\n", ratio);
}

}  // namespace
}  // namespace shardline::bench

int main() {
  shardline::bench::Run();
  return 0;
}
