#pragma once

// A TCP relay on loopback that fails like a cable: cut, in one direction or both, open connections
// stay open and carry nothing more, and new ones are accepted and carry nothing; neither end sees
// a reset until it is mended. Or it resets what it carries, at once or in the middle of a message.
//
// All calls from any thread; they hold for every byte that is sent after they returned.

#include <cstdint>
#include <deque>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/instant.h"

struct pollfd;

namespace shardline::testing {

class TcpProxy {
 public:
  enum class Direction { kToTarget, kFromTarget };

  // Listens on a free loopback port. SetTarget must follow before the first connection.
  TcpProxy();
  ~TcpProxy();

  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  // "127.0.0.1:port" of the proxy, and of what it relays to.
  std::string address() const;
  void SetTarget(const std::string& address);

  void Cut();
  void CutOneWay(Direction direction);
  void Mend();  // Bytes held back while it was cut flow again.

  // Every open connection ends with a reset at both ends; new ones work.
  void Reset();
  // As Reset, for the one connection that carries the `bytes`-th byte to the target from now on;
  // what follows that byte is lost.
  void ResetAfter(int64_t bytes);

  // Every byte takes `delay` longer, each way.
  void Delay(absl::Duration delay);

 private:
  struct Chunk {
    std::string bytes;
    size_t sent = 0;
    Instant due;
  };
  // One direction of a connection.
  struct Flow {
    int from = -1;
    int to = -1;
    std::deque<Chunk> chunks;
    size_t queued_bytes = 0;
    bool ended = false;  // `from` will send no more.
  };
  struct Connection {
    int client = -1;
    int target = -1;
    Flow flows[2];  // By Direction.
  };
  // What the callers want of the thread.
  struct Orders {
    uint16_t target_port = 0;
    bool cut[2] = {false, false};  // By Direction.
    bool reset = false;
    int64_t reset_after = -1;  // Bytes to the target; negative: never.
    absl::Duration delay = absl::ZeroDuration();
    bool stop = false;
  };

  void Order(void (*change)(Orders&, int64_t), int64_t argument = 0) ABSL_LOCKS_EXCLUDED(mu_);
  Orders TakeOrders() ABSL_LOCKS_EXCLUDED(mu_);
  void Run();
  // What to wait for: the wake-up, the listener, then two sockets a connection.
  std::vector<pollfd> Interests(Instant now) const;
  void Accept(uint16_t target_port);
  // What `flow` waits for, as poll events of its two sockets.
  static short ReadEvents(const Flow& flow);
  static short WriteEvents(const Flow& flow, Instant now);
  // False when the connection is over.
  bool Move(Connection& connection, short client_events, short target_events, Instant now);
  bool Read(Flow& flow, Instant now);
  bool Write(Flow& flow, bool to_target, Instant now);
  static void Close(const Connection& connection, bool reset);
  // Milliseconds until a delayed chunk is due; negative when there is none.
  int WaitMs(Instant now) const;

  int listener_ = -1;
  int wake_ = -1;  // An eventfd.
  uint16_t port_ = 0;

  // Of the relaying thread.
  std::list<Connection> connections_;
  bool cut_[2] = {false, false};
  int64_t reset_after_ = -1;
  absl::Duration delay_;

  absl::Mutex mu_;
  Orders orders_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace shardline::testing
