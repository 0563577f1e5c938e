#pragma once

// What one server stream still has to say, and the right to touch its reactor.
//
// A gRPC reactor allows one write at a time and deletes itself after its end. The outbox queues
// messages up to a bound, starts the next write when one is done, and finishes the stream once,
// after what was queued. Whoever is handed a message to write (or the end) is the only one who may
// call the reactor, and the reactor cannot be gone before that call: so no lock is held across it.
//
// Held by shared_ptr, because it outlives the reactor: late senders find it ended. Any thread.

#include <cstddef>
#include <deque>
#include <utility>

#include <grpcpp/support/status.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace shardline {

template <typename Reactor, typename Message>
class StreamOutbox {
 public:
  // `reactor` must call OnWriteDone and be deleted only after its own OnDone.
  StreamOutbox(Reactor* reactor, size_t messages_max)
      : reactor_(reactor), messages_max_(messages_max) {}

  // Queues `message`; false when the queue is full or the stream has ended.
  [[nodiscard]] bool Send(Message message) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (ended_ || queue_.size() >= messages_max_) return false;
      queue_.push_back(std::move(message));
      if (writing_) return true;
      writing_ = true;
    }
    WriteFront();
    return true;
  }

  // Ends the stream with `status` after what is queued. Only the first end counts.
  void End(grpc::Status status) ABSL_LOCKS_EXCLUDED(mu_) { EndWith(std::move(status), false); }

  // As End, and what is queued but not yet being written is dropped.
  void EndNow(grpc::Status status) ABSL_LOCKS_EXCLUDED(mu_) { EndWith(std::move(status), true); }

  // From the reactor's OnWriteDone.
  void OnWriteDone(bool ok) ABSL_LOCKS_EXCLUDED(mu_) {
    bool finish = false;
    {
      absl::MutexLock lock(&mu_);
      queue_.pop_front();
      if (!ok) queue_.clear();
      if (!ok && !ended_) {
        ended_ = true;
        status_ = grpc::Status(grpc::StatusCode::CANCELLED, "the peer hung up");
      }
      if (queue_.empty()) {
        writing_ = false;
        finish = ended_;
      }
      if (!finish && queue_.empty()) return;
    }
    if (finish) {
      Finish();
    } else {
      WriteFront();
    }
  }

 private:
  void EndWith(grpc::Status status, bool drop_queue) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      absl::MutexLock lock(&mu_);
      if (ended_) return;
      ended_ = true;
      status_ = std::move(status);
      if (drop_queue) queue_.resize(writing_ ? 1 : 0);  // The first one is gRPC's to read.
      if (writing_) return;
    }
    Finish();
  }

  // REQUIRES: the caller has just set writing_, or found more to write; the front stays put.
  void WriteFront() ABSL_LOCKS_EXCLUDED(mu_) {
    const Message* front = nullptr;
    {
      absl::MutexLock lock(&mu_);
      front = &queue_.front();
    }
    reactor_->StartWrite(front);
  }

  void Finish() ABSL_LOCKS_EXCLUDED(mu_) {
    grpc::Status status;
    {
      absl::MutexLock lock(&mu_);
      status = status_;
    }
    reactor_->Finish(std::move(status));
  }

  Reactor* const reactor_;
  const size_t messages_max_;

  absl::Mutex mu_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mu_);  // The front is being written if writing_.
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace shardline
