#pragma once

// A TCP relay on loopback that can be cut like a cable: open connections stay open and carry
// nothing more, new ones are accepted and carry nothing. Until it is mended, neither end sees a
// reset.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace shardline::testing {

class TcpProxy {
 public:
  // Listens on a free loopback port. SetTarget must follow before the first connection.
  TcpProxy();
  ~TcpProxy();

  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  // "127.0.0.1:port" of the proxy, and of what it relays to.
  std::string address() const;
  void SetTarget(const std::string& address);

  void Cut() { cut_ = true; }
  void Mend() { cut_ = false; }  // Bytes held back while it was cut flow again.

 private:
  void Run();

  int listener_ = -1;
  int stop_pipe_[2] = {-1, -1};
  uint16_t port_ = 0;
  std::atomic<uint16_t> target_port_ = 0;
  std::atomic<bool> cut_ = false;
  std::thread thread_;
};

}  // namespace shardline::testing
