#pragma once

// A TCP proxy that cuts connections after given numbers of bytes, at whatever byte that is.

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace shardline::testing {

class CuttingProxy {
 public:
  // Listens on a port of its own and forwards to `target`, "127.0.0.1:port". After `cuts[0]` bytes
  // from the client's side every open connection is reset, after `cuts[1]` more again, and so on;
  // then nothing is cut any more.
  CuttingProxy(const std::string& target, std::vector<uint64_t> cuts);
  ~CuttingProxy();

  CuttingProxy(const CuttingProxy&) = delete;
  CuttingProxy& operator=(const CuttingProxy&) = delete;

  const std::string& address() const { return address_; }

  // How many cuts were made. Only after Stop.
  size_t cut_count() const { return cut_count_; }
  void Stop();

 private:
  struct Pair {
    int client = -1;
    int server = -1;
  };

  void Run();
  void Accept();
  // False if the connection is over.
  bool Pump(const Pair& pair, bool from_client);
  static void Reset(const Pair& pair);

  const std::vector<uint64_t> cuts_;
  sockaddr_in target_ = {};
  std::string address_;
  int listener_ = -1;
  int stop_[2] = {-1, -1};
  std::vector<Pair> pairs_;
  uint64_t passed_ = 0;  // Since the last cut.
  size_t cut_count_ = 0;
  std::thread thread_;  // Last: it sees all of the above.
};

}  // namespace shardline::testing
