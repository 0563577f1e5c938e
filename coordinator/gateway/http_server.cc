#include "coordinator/gateway/http_server.h"

#include <algorithm>
#include <array>
#include <functional>
#include <latch>
#include <optional>
#include <span>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "coordinator/gateway/http_listener.h"
#include "coordinator/gateway/http_outbox.h"
#include "coordinator/gateway/http_parser.h"

namespace shardline {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 4096;            // At once; a part of every connection.
constexpr size_t kReadAheadBytes = 16 * 1024;  // Of later requests, while one is answered.
constexpr int kRefusedMax = 64;                // Connections over the limit that are told so.
// Browsers forget what they have not read of an answer when its connection breaks, and with it the
// reason why it was cut short.
constexpr absl::Duration kCutPause = absl::Milliseconds(100);
constexpr absl::Duration kLingerTime = absl::Seconds(2);  // For the client to read the last answer.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(50);  // Out of descriptors.

class Exchange final : public HttpExchange {
 public:
  Exchange(HttpRequest request, std::shared_ptr<HttpOutbox> outbox)
      : request_(std::move(request)), outbox_(std::move(outbox)) {}
  ~Exchange() override { outbox_->LetGo(); }

  const HttpRequest& request() const override { return request_; }
  void Answer(HttpResponse response) override { outbox_->Answer(std::move(response)); }
  void Begin(HttpResponse response) override { outbox_->Begin(std::move(response)); }
  bool Write(std::string piece) override { return outbox_->Write(piece); }
  void Finish() override { outbox_->Finish(); }
  void Abort() override { outbox_->Abort(); }
  void OnGone(absl::AnyInvocable<void()> gone) override { outbox_->OnGone(std::move(gone)); }

 private:
  const HttpRequest request_;
  const std::shared_ptr<HttpOutbox> outbox_;
};

class Connection;

// One thread and the connections that live on it. Another thread may only post to `context`, which
// is shared because a late answer may still post when the server is gone.
struct Worker {
  Worker() : context(std::make_shared<asio::io_context>(1)), sweep_timer(*context) {}

  // A copy, for a walk on which some close.
  std::vector<std::shared_ptr<Connection>> All() const {
    return {connections.begin(), connections.end()};
  }

  const std::shared_ptr<asio::io_context> context;
  asio::steady_timer sweep_timer;
  absl::flat_hash_set<std::shared_ptr<Connection>> connections;
  bool is_shut = false;
  std::thread thread;
};

// What all connections share.
struct House {
  enum class Admission { kServed, kRefused, kDropped };

  Admission Admit() ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    if (open_count >= options.connections_max + kRefusedMax) return Admission::kDropped;
    counters->connections = static_cast<uint64_t>(++open_count);
    return open_count > options.connections_max ? Admission::kRefused : Admission::kServed;
  }
  void OnClosed() ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    counters->connections = static_cast<uint64_t>(--open_count);
  }
  void AwaitEmpty(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    const auto is_empty = [](int* count) { return *count == 0; };
    mu.AwaitWithTimeout(absl::Condition(+is_empty, &open_count), limit);
  }

  // Constant once started.
  HttpServerOptions options;
  HttpHandler* handler = nullptr;
  const std::shared_ptr<HttpCounters> counters = std::make_shared<HttpCounters>();
  std::optional<asio::ssl::context> tls;

  absl::Mutex mu;
  int open_count ABSL_GUARDED_BY(mu) = 0;
};

// One client. Lives on its worker's thread; what it runs is one reader, which stays pending while
// an answer is computed (so that a client that goes is noticed), and one writer while there is
// something to write. Kept by its worker until Close.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(House& house, Worker& worker, tcp::socket socket, bool is_refused);

  void Open();
  void OnSweep(Instant now);
  void OnStopping();
  // Ends at once whatever is under way; the client sees a reset.
  void HangUp();

 private:
  enum class Phase {
    kHandshake,
    kIdle,  // Between requests.
    kHead,  // Reading one.
    kBody,
    kAnswer,  // It is with the handler, or its answer is on its way.
    kCut,     // The answer will not be whole; the client may read what there is of it.
    kLinger,  // All is said; the client may still read.
    kClosed,
  };

  bool IsReadingRequest() const {
    return phase_ == Phase::kIdle || phase_ == Phase::kHead || phase_ == Phase::kBody;
  }
  bool WantsToRead() const {
    if (phase_ == Phase::kClosed || is_peer_done_) return false;
    return phase_ != Phase::kAnswer || input_.size() < kReadAheadBytes;
  }
  void Enter(Phase phase, absl::Duration limit);
  void StartReading();
  void OnRead(size_t bytes);
  void OnReadEnd(const error_code& ec);
  void Advance();
  void Deliver();
  void Refuse(int status, std::string_view reason);
  void OpenOutbox(const HttpRequest* request, bool is_http11, bool keep_alive);
  void Flush();
  std::string NextBytes();
  void OnSent(size_t bytes);
  void OnDrained();
  void Linger();
  void Close();

  // Each holds the connection while it runs.
  static awaitable<void> Handshake(std::shared_ptr<Connection> self);
  static awaitable<void> ReadLoop(std::shared_ptr<Connection> self);
  static awaitable<void> WriteLoop(std::shared_ptr<Connection> self);
  static awaitable<void> EndTls(std::shared_ptr<Connection> self);

  House& house_;
  Worker& worker_;
  const bool is_refused_;  // Over the limit: told so, and closed.
  std::string peer_;
  tcp::socket socket_;
  std::unique_ptr<asio::ssl::stream<tcp::socket&>> tls_;

  Phase phase_ = Phase::kHandshake;
  Instant deadline_ = Instant::InfiniteFuture();        // Of the phase.
  Instant write_deadline_ = Instant::InfiniteFuture();  // For the client to take something.
  bool is_reading_ = false;
  bool is_writing_ = false;
  bool is_peer_done_ = false;  // It sends no more; it may still read.
  bool is_deaf_ = false;       // What it sends means nothing any more.
  bool is_http11_ = true;      // The request that is answered.
  std::array<char, kReadBytes> chunk_;
  std::string input_;  // Read and not understood yet.
  std::unique_ptr<HttpParser> parser_;
  std::string interim_;        // "100 Continue", before the answer.
  size_t interim_unsent_ = 0;  // Of what was taken of it.
  std::shared_ptr<HttpOutbox> outbox_;
  HttpOutbox::End end_ = HttpOutbox::End::kOpen;  // After what was taken of it.
};

Connection::Connection(House& house, Worker& worker, tcp::socket socket, bool is_refused)
    : house_(house), worker_(worker), is_refused_(is_refused), socket_(std::move(socket)) {
  error_code ec;
  const tcp::endpoint remote = socket_.remote_endpoint(ec);
  if (!ec) peer_ = remote.address().to_string();
  socket_.set_option(tcp::no_delay(true), ec);
  if (house_.tls) {
    tls_ = std::make_unique<asio::ssl::stream<tcp::socket&>>(socket_, *house_.tls);
  }
}

void Connection::Open() {
  if (tls_) {
    Enter(Phase::kHandshake, house_.options.header_time);
    asio::co_spawn(*worker_.context, Handshake(shared_from_this()), asio::detached);
    return;
  }
  Enter(Phase::kIdle, is_refused_ ? house_.options.header_time : house_.options.idle_time);
  StartReading();
}

void Connection::Enter(Phase phase, absl::Duration limit) {
  if (phase == phase_ && phase != Phase::kHandshake) return;
  phase_ = phase;
  deadline_ = SystemClock()->Now() + limit;
}

void Connection::OnSweep(Instant now) {
  if (now >= write_deadline_) return HangUp();
  if (now < deadline_) return;
  if (phase_ == Phase::kHead) return Refuse(408, "the head of the request took too long");
  if (phase_ == Phase::kBody) return Refuse(408, "the body of the request took too long");
  if (phase_ == Phase::kCut) return is_http11_ ? Linger() : HangUp();
  Close();
}

void Connection::OnStopping() {
  if (phase_ == Phase::kIdle) Linger();
  if (phase_ == Phase::kHandshake) Close();
}

void Connection::StartReading() {
  if (is_reading_ || !WantsToRead()) return;
  is_reading_ = true;
  asio::co_spawn(*worker_.context, ReadLoop(shared_from_this()), asio::detached);
}

void Connection::OnRead(size_t bytes) {
  if (is_deaf_ || phase_ == Phase::kCut || phase_ == Phase::kLinger) return;
  input_.append(chunk_.data(), bytes);
  if (IsReadingRequest()) Advance();
}

void Connection::OnReadEnd(const error_code& ec) {
  is_peer_done_ = true;
  if (phase_ == Phase::kCut || phase_ == Phase::kLinger) return Close();
  if (ec != asio::error::eof) return HangUp();
  if (IsReadingRequest()) return Advance();
  outbox_->Gone();  // An answer that comes all the same is still sent.
}

// Reads on in the request, and hands it over once it is whole.
void Connection::Advance() {
  if (input_.empty() && phase_ == Phase::kIdle) {
    if (is_peer_done_) return Close();
    if (house_.counters->is_stopping) Linger();
    return;
  }
  if (parser_ == nullptr) {
    const HttpServerOptions& options = house_.options;
    parser_ = std::make_unique<HttpParser>(HttpParserLimits{
        .header_bytes_max = options.header_bytes_max, .body_bytes_max = options.body_bytes_max});
  }
  const bool had_head = phase_ == Phase::kBody;
  const HttpParser::State state = parser_->Feed(input_);
  if (state == HttpParser::State::kRefused) {
    const HttpParser::Refusal refusal = parser_->refusal();
    return Refuse(refusal.status, refusal.reason);
  }
  const bool has_head = state == HttpParser::State::kBody || state == HttpParser::State::kDone;
  if (is_refused_ && has_head) return Refuse(503, "too many connections");
  if (state == HttpParser::State::kDone) return Deliver();
  if (is_peer_done_) return Close();
  if (state == HttpParser::State::kBlank) {
    parser_.reset();
  } else if (state == HttpParser::State::kHead) {
    Enter(Phase::kHead, house_.options.header_time);
  } else {
    Enter(Phase::kBody, house_.options.body_time);
    if (had_head || !parser_->expects_continue()) return;
    interim_ = "HTTP/1.1 100 Continue\r\n\r\n";
    Flush();
  }
}

void Connection::Deliver() {
  HttpRequest request = parser_->TakeRequest();
  OpenOutbox(&request, parser_->is_http11(), parser_->keep_alive());
  parser_.reset();
  request.peer = peer_;
  request.is_tls = tls_ != nullptr;
  ++house_.counters->requests;
  const std::shared_ptr<HttpOutbox> outbox = outbox_;
  house_.handler->OnRequest(std::make_shared<Exchange>(std::move(request), outbox));
  if (is_peer_done_) outbox->Gone();
}

void Connection::Refuse(int status, std::string_view reason) {
  parser_.reset();
  input_ = {};
  is_deaf_ = true;
  OpenOutbox(nullptr, /*is_http11=*/true, /*keep_alive=*/false);
  ++house_.counters->refused;
  outbox_->Answer(house_.handler->Refusal(status, reason));
}

void Connection::OpenOutbox(const HttpRequest* request, bool is_http11, bool keep_alive) {
  Enter(Phase::kAnswer, absl::InfiniteDuration());
  const bool is_head = request != nullptr && request->method == "HEAD";
  is_http11_ = is_http11;
  end_ = HttpOutbox::End::kOpen;
  outbox_ = std::make_shared<HttpOutbox>(
      HttpOutbox::Options{.is_head = is_head,
                          .is_http11 = is_http11,
                          .keep_alive = keep_alive,
                          .stream_bytes_max = house_.options.stream_bytes_max,
                          .counters = house_.counters,
                          .wake = [context = worker_.context, weak = weak_from_this()] {
                            asio::post(*context, [weak] {
                              if (const std::shared_ptr<Connection> self = weak.lock())
                                self->Flush();
                            });
                          }});
}

void Connection::Flush() {
  if (is_writing_ || phase_ == Phase::kClosed) return;
  is_writing_ = true;
  asio::co_spawn(*worker_.context, WriteLoop(shared_from_this()), asio::detached);
}

std::string Connection::NextBytes() {
  if (phase_ == Phase::kClosed) return {};
  if (!interim_.empty()) {
    interim_unsent_ = interim_.size();
    return std::exchange(interim_, {});
  }
  if (outbox_ == nullptr) return {};
  HttpOutbox::Batch batch = outbox_->Take();
  end_ = batch.end;
  return std::move(batch.bytes);
}

void Connection::OnSent(size_t bytes) {
  const size_t interim = std::min(bytes, interim_unsent_);
  interim_unsent_ -= interim;
  if (outbox_) outbox_->Sent(bytes - interim);
}

// Nothing is left to write for now.
void Connection::OnDrained() {
  is_writing_ = false;
  write_deadline_ = Instant::InfiniteFuture();
  if (phase_ != Phase::kAnswer || end_ == HttpOutbox::End::kOpen) return;
  outbox_.reset();
  if (end_ == HttpOutbox::End::kCut) return Enter(Phase::kCut, kCutPause);
  if (end_ != HttpOutbox::End::kKeep) return Linger();
  Enter(Phase::kIdle, house_.options.idle_time);
  Advance();
  StartReading();
}

// Half closes, so that the last answer is not lost with a connection reset under it.
void Connection::Linger() {
  input_ = {};
  parser_.reset();
  Enter(Phase::kLinger, kLingerTime);
  if (is_peer_done_) return Close();
  if (tls_ != nullptr && end_ != HttpOutbox::End::kCut) {
    asio::co_spawn(*worker_.context, EndTls(shared_from_this()), asio::detached);
  } else {
    error_code ec;
    socket_.shutdown(tcp::socket::shutdown_send, ec);
  }
  StartReading();
}

void Connection::HangUp() {
  error_code ec;
  if (phase_ != Phase::kClosed) socket_.set_option(asio::socket_base::linger(true, 0), ec);
  Close();
}

void Connection::Close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  const std::shared_ptr<Connection> self = shared_from_this();
  if (outbox_) outbox_->Gone();
  outbox_.reset();
  error_code ec;
  socket_.close(ec);
  worker_.connections.erase(self);
  house_.OnClosed();
}

awaitable<void> Connection::Handshake(std::shared_ptr<Connection> self) {
  const auto [ec] = co_await self->tls_->async_handshake(asio::ssl::stream_base::server, kTuple);
  if (self->phase_ == Phase::kClosed) co_return;
  if (ec) {
    self->Close();
    co_return;
  }
  self->Enter(Phase::kIdle, self->house_.options.idle_time);
  self->StartReading();
}

awaitable<void> Connection::ReadLoop(std::shared_ptr<Connection> self) {
  error_code ec;
  while (self->WantsToRead()) {
    size_t bytes = 0;
    const asio::mutable_buffer buffer = asio::buffer(self->chunk_);
    if (self->tls_) {
      std::tie(ec, bytes) = co_await self->tls_->async_read_some(buffer, kTuple);
    } else {
      std::tie(ec, bytes) = co_await self->socket_.async_read_some(buffer, kTuple);
    }
    if (self->phase_ == Phase::kClosed) co_return;
    if (ec) break;
    self->OnRead(bytes);
  }
  self->is_reading_ = false;
  if (ec) self->OnReadEnd(ec);
}

awaitable<void> Connection::WriteLoop(std::shared_ptr<Connection> self) {
  for (std::string bytes = self->NextBytes(); !bytes.empty(); bytes = self->NextBytes()) {
    for (size_t sent = 0; sent < bytes.size();) {
      self->write_deadline_ = SystemClock()->Now() + self->house_.options.write_time;
      const asio::const_buffer buffer = asio::buffer(bytes.data() + sent, bytes.size() - sent);
      error_code ec;
      size_t taken = 0;
      if (self->tls_) {
        std::tie(ec, taken) = co_await self->tls_->async_write_some(buffer, kTuple);
      } else {
        std::tie(ec, taken) = co_await self->socket_.async_write_some(buffer, kTuple);
      }
      if (self->phase_ == Phase::kClosed) co_return;
      if (ec) {
        self->HangUp();
        co_return;
      }
      sent += taken;
      self->OnSent(taken);
    }
  }
  if (self->phase_ != Phase::kClosed) self->OnDrained();
}

// Says that the end is meant, and waits for the client's word or the deadline.
awaitable<void> Connection::EndTls(std::shared_ptr<Connection> self) {
  const auto [failed] = co_await self->tls_->async_shutdown(kTuple);
  if (self->phase_ == Phase::kClosed) co_return;
  error_code ec;
  self->socket_.shutdown(tcp::socket::shutdown_send, ec);
  if (!failed) self->Close();
}

awaitable<void> AcceptLoop(House& house, tcp::acceptor& acceptor,
                           std::span<const std::unique_ptr<Worker>> workers) {
  for (size_t next = 0; acceptor.is_open(); next = (next + 1) % workers.size()) {
    Worker& worker = *workers[next];
    tcp::socket socket(*worker.context);
    const auto [ec] = co_await acceptor.async_accept(socket, kTuple);
    if (ec == asio::error::operation_aborted) break;
    if (ec) {
      asio::steady_timer pause(acceptor.get_executor(), absl::ToChronoMilliseconds(kAcceptPause));
      co_await pause.async_wait(kTuple);
      continue;
    }
    const House::Admission admission = house.Admit();
    if (admission == House::Admission::kDropped) continue;
    asio::post(*worker.context, [&house, &worker, socket = std::move(socket), admission]() mutable {
      const bool is_refused = admission == House::Admission::kRefused;
      const auto connection =
          std::make_shared<Connection>(house, worker, std::move(socket), is_refused);
      worker.connections.insert(connection);
      connection->Open();
    });
  }
}

// Deadlines are looked at now and then, so that a connection needs no timer of its own.
awaitable<void> SweepLoop(Worker& worker, absl::Duration period) {
  while (!worker.is_shut) {
    worker.sweep_timer.expires_after(absl::ToChronoNanoseconds(period));
    co_await worker.sweep_timer.async_wait(kTuple);
    const Instant now = SystemClock()->Now();
    for (const auto& connection : worker.All()) connection->OnSweep(now);
  }
}

absl::Duration SweepPeriod(const HttpServerOptions& options) {
  const absl::Duration shortest =
      std::min({options.header_time, options.body_time, options.idle_time, options.write_time});
  return std::clamp(shortest / 8, absl::Milliseconds(2), absl::Milliseconds(250));
}

}  // namespace

struct HttpServer::Impl {
  // Runs `action` on the thread of every worker, and waits. REQUIRES: none of them calls.
  void OnEveryWorker(const std::function<void(Worker&)>& action);

  House house;
  std::vector<std::unique_ptr<Worker>> workers;
  std::optional<tcp::acceptor> acceptor;  // Lives on the first worker.
  int port = 0;
  bool is_shut = false;
};

void HttpServer::Impl::OnEveryWorker(const std::function<void(Worker&)>& action) {
  std::latch left(static_cast<ptrdiff_t>(workers.size()));
  for (const auto& worker : workers) {
    asio::post(*worker->context, [&] {
      action(*worker);
      left.count_down();
    });
  }
  left.wait();
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              HttpHandler* handler) {
  auto impl = std::make_unique<Impl>();
  impl->house.options = options;
  impl->house.handler = handler;
  SL_RETURN_IF_ERROR(LoadCertificate(options, impl->house.tls));
  for (int i = 0; i < std::max(options.threads, 1); ++i) {
    impl->workers.push_back(std::make_unique<Worker>());
  }
  asio::io_context& first = *impl->workers[0]->context;
  impl->acceptor.emplace(first);
  SL_RETURN_IF_ERROR(ListenOn(*impl->acceptor, options.listen));
  error_code ec;
  impl->port = impl->acceptor->local_endpoint(ec).port();
  asio::co_spawn(first, AcceptLoop(impl->house, *impl->acceptor, impl->workers), asio::detached);
  for (const auto& worker : impl->workers) {
    asio::co_spawn(*worker->context, SweepLoop(*worker, SweepPeriod(options)), asio::detached);
    worker->thread = std::thread([context = worker->context] { context->run(); });
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() { Shutdown(absl::ZeroDuration()); }

int HttpServer::port() const { return impl_->port; }

HttpFigures HttpServer::figures() const {
  const HttpCounters& counters = *impl_->house.counters;
  return {.connections = counters.connections,
          .streams = counters.streams,
          .requests = counters.requests,
          .refused = counters.refused,
          .gone = counters.gone};
}

void HttpServer::StopAccepting() {
  if (impl_->house.counters->is_stopping.exchange(true)) return;
  Worker* const first = impl_->workers[0].get();
  impl_->OnEveryWorker([&](Worker& worker) {
    error_code ec;
    if (&worker == first) impl_->acceptor->close(ec);
  });
  impl_->OnEveryWorker([](Worker& worker) {
    for (const auto& connection : worker.All()) connection->OnStopping();
  });
}

void HttpServer::Shutdown(absl::Duration limit) {
  if (std::exchange(impl_->is_shut, true)) return;
  StopAccepting();
  impl_->house.AwaitEmpty(limit);
  impl_->OnEveryWorker([](Worker& worker) {
    worker.is_shut = true;
    for (const auto& connection : worker.All()) connection->HangUp();
    worker.sweep_timer.cancel();
  });
  for (const auto& worker : impl_->workers) worker->thread.join();
}

}  // namespace shardline
