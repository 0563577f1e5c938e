#pragma once

// One answer on its way to the client: what is still to be sent, and how it ends.
//
// Between any thread that answers and the one thread of the connection that writes. Bounded: a
// stream whose client reads too slowly is cut, and nobody waits. Knows bytes, no sockets.
// Held by shared_ptr, because either side may go first.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/gateway/http_message.h"

namespace shardline {

// What a server counts; shared, because an answer may outlive its server.
struct HttpCounters {
  std::atomic<uint64_t> connections = 0;
  std::atomic<uint64_t> streams = 0;
  std::atomic<uint64_t> requests = 0;
  std::atomic<uint64_t> refused = 0;
  std::atomic<uint64_t> gone = 0;
  std::atomic<bool> is_stopping = false;  // Every answer from here on closes its connection.
};

// The head of an answer, up to and with the empty line. Values cannot smuggle in a line end.
struct HttpHead {
  bool keep_alive = true;
  bool is_http11 = true;
  bool is_chunked = false;
  std::optional<size_t> body_bytes;  // Told if given.
};
std::string RenderHead(const HttpResponse& response, const HttpHead& head);

class HttpOutbox {
 public:
  struct Options {
    bool is_head = false;  // The request's method: no body is sent.
    bool is_http11 = true;
    bool keep_alive = true;       // What the client wishes.
    size_t stream_bytes_max = 0;  // Unsent bytes of a stream.
    std::shared_ptr<HttpCounters> counters;
    // Tells the connection that there is something to take. Any thread; never blocks.
    std::function<void()> wake;
  };
  explicit HttpOutbox(Options options);

  // For the exchange: as HttpExchange has it. Any thread.
  void Answer(HttpResponse response) ABSL_LOCKS_EXCLUDED(mu_);
  void Begin(HttpResponse response) ABSL_LOCKS_EXCLUDED(mu_);
  [[nodiscard]] bool Write(std::string_view piece) ABSL_LOCKS_EXCLUDED(mu_);
  void Finish() ABSL_LOCKS_EXCLUDED(mu_);
  void Abort() ABSL_LOCKS_EXCLUDED(mu_);
  void OnGone(absl::AnyInvocable<void()> gone) ABSL_LOCKS_EXCLUDED(mu_);
  // The last reference went: ends what was not ended.
  void LetGo() ABSL_LOCKS_EXCLUDED(mu_);

  // For the connection, on its thread.
  enum class End {
    kOpen,   // More may come.
    kKeep,   // Whole, and the connection may carry more.
    kClose,  // Whole, and the last one.
    kCut,    // Not whole: the client must see that.
  };
  struct Batch {
    std::string bytes;     // To be sent now.
    End end = End::kOpen;  // After those bytes.
  };
  Batch Take() ABSL_LOCKS_EXCLUDED(mu_);
  void Sent(size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);  // Of what was taken.
  // The client hung up. Calls the exchange's `gone` if the answer was not complete.
  void Gone() ABSL_LOCKS_EXCLUDED(mu_);

  // Unsent bytes. Any thread.
  size_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  enum class State { kWaiting, kStreaming, kEnded };

  void EndStream(bool whole) ABSL_LOCKS_EXCLUDED(mu_);
  void AppendPiece(std::string_view piece) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the caller must wake the connection once the lock is free.
  [[nodiscard]] bool MustWake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;

  mutable absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kWaiting;
  End end_ ABSL_GUARDED_BY(mu_) = End::kOpen;
  bool keeps_ ABSL_GUARDED_BY(mu_) = false;  // Told in the head.
  bool is_gone_ ABSL_GUARDED_BY(mu_) = false;
  bool is_overrun_ ABSL_GUARDED_BY(mu_) = false;  // A piece was refused: never whole again.
  bool is_woken_ ABSL_GUARDED_BY(mu_) = false;    // And has not taken yet.
  std::string queued_ ABSL_GUARDED_BY(mu_);
  size_t taken_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // Taken and not sent.
  absl::AnyInvocable<void()> on_gone_ ABSL_GUARDED_BY(mu_);
};

}  // namespace shardline
