#include "tests/node/cutting_proxy.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shardline::testing {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool SendAll(int to, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t sent = send(to, bytes, count, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace

CuttingProxy::CuttingProxy(const std::string& target, std::vector<uint64_t> cuts)
    : cuts_(std::move(cuts)) {
  int port = 0;
  SL_CHECK(absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &port));
  target_ = Loopback(static_cast<uint16_t>(port));
  listener_ = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in own = Loopback(0);
  socklen_t size = sizeof(own);
  auto* address = reinterpret_cast<sockaddr*>(&own);
  SL_CHECK(bind(listener_, address, size) == 0);
  SL_CHECK(listen(listener_, 16) == 0);
  SL_CHECK(getsockname(listener_, address, &size) == 0);
  SL_CHECK(pipe(stop_) == 0);
  address_ = absl::StrCat("127.0.0.1:", ntohs(own.sin_port));
  thread_ = std::thread([this] { Run(); });
}

CuttingProxy::~CuttingProxy() { Stop(); }

void CuttingProxy::Stop() {
  if (!thread_.joinable()) return;
  SL_CHECK(write(stop_[1], "x", 1) == 1);
  thread_.join();
  for (const Pair& pair : pairs_) Reset(pair);
  pairs_.clear();
  for (const int fd : {listener_, stop_[0], stop_[1]}) close(fd);
}

void CuttingProxy::Run() {
  while (true) {
    std::vector<pollfd> polled = {{stop_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Pair& pair : pairs_) {
      polled.push_back({pair.client, POLLIN, 0});
      polled.push_back({pair.server, POLLIN, 0});
    }
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) return;
    std::vector<Pair> over;
    const size_t cuts_before = cut_count_;
    for (size_t i = 0; i < pairs_.size() && cut_count_ == cuts_before; ++i) {
      const bool goes_on = (polled[2 + 2 * i].revents == 0 || Pump(pairs_[i], true)) &&
                           (polled[3 + 2 * i].revents == 0 || Pump(pairs_[i], false));
      if (!goes_on) over.push_back(pairs_[i]);
    }
    if (cut_count_ != cuts_before) over = pairs_;
    for (const Pair& pair : over) {
      Reset(pair);
      std::erase_if(pairs_, [&](const Pair& other) { return other.client == pair.client; });
    }
    if (polled[1].revents != 0) Accept();
  }
}

void CuttingProxy::Accept() {
  Pair pair{.client = accept(listener_, nullptr, nullptr),
            .server = socket(AF_INET, SOCK_STREAM, 0)};
  if (pair.client < 0) return;
  if (connect(pair.server, reinterpret_cast<sockaddr*>(&target_), sizeof(target_)) != 0) {
    Reset(pair);
    return;
  }
  const int at_once = 1;
  for (const int fd : {pair.client, pair.server}) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
  }
  pairs_.push_back(pair);
}

bool CuttingProxy::Pump(const Pair& pair, bool from_client) {
  std::array<char, 4096> bytes;
  const ssize_t got = recv(from_client ? pair.client : pair.server, bytes.data(), bytes.size(), 0);
  if (got <= 0) return false;
  auto count = static_cast<uint64_t>(got);
  const bool cuts =
      from_client && cut_count_ < cuts_.size() && passed_ + count >= cuts_[cut_count_];
  if (cuts) count = cuts_[cut_count_] - passed_;
  if (!SendAll(from_client ? pair.server : pair.client, bytes.data(), count)) return false;
  if (from_client) passed_ += count;
  if (!cuts) return true;
  passed_ = 0;
  ++cut_count_;
  return false;
}

// With a reset, not an end: what was not read yet is lost.
void CuttingProxy::Reset(const Pair& pair) {
  const linger now = {.l_onoff = 1, .l_linger = 0};
  setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close(pair.client);
  // The server has read what it was given, up to the cut.
  close(pair.server);
}

}  // namespace shardline::testing
