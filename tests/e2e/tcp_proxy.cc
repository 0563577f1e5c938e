#include "tests/e2e/tcp_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <list>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace shardline::testing {
namespace {

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

struct Pair {
  int a = -1;
  int b = -1;
};

// Moves what is readable from one end to the other; false when the connection is over.
bool Relay(int from, int to) {
  char bytes[65536];
  const ssize_t count = recv(from, bytes, sizeof(bytes), 0);
  if (count <= 0) return false;
  ssize_t sent = 0;
  while (sent < count) {
    const ssize_t n = send(to, bytes + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += n;
  }
  return true;
}

}  // namespace

TcpProxy::TcpProxy() {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  SL_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  SL_CHECK(listen(listener_, 64) == 0);
  socklen_t size = sizeof(address);
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  SL_CHECK(pipe2(stop_pipe_, O_CLOEXEC) == 0);
  thread_ = std::thread([this] { Run(); });
}

TcpProxy::~TcpProxy() {
  const char stop = 0;
  SL_CHECK(write(stop_pipe_[1], &stop, 1) == 1);
  thread_.join();
  close(listener_);
  close(stop_pipe_[0]);
  close(stop_pipe_[1]);
}

std::string TcpProxy::address() const { return absl::StrCat("127.0.0.1:", port_); }

void TcpProxy::SetTarget(const std::string& address) {
  int port = 0;
  SL_CHECK(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  target_port_ = static_cast<uint16_t>(port);
}

void TcpProxy::Run() {
  std::list<Pair> pairs;
  while (true) {
    std::vector<pollfd> fds = {{stop_pipe_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    const bool cut = cut_;
    if (!cut) {
      for (const Pair& pair : pairs) {
        fds.push_back({pair.a, POLLIN, 0});
        fds.push_back({pair.b, POLLIN, 0});
      }
    }
    poll(fds.data(), fds.size(), 20);  // Looks at `cut_` that often.
    if ((fds[0].revents & POLLIN) != 0) break;
    if ((fds[1].revents & POLLIN) != 0) {
      const int a = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int b = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in target = Loopback(target_port_);
      if (connect(b, reinterpret_cast<sockaddr*>(&target), sizeof(target)) == 0) {
        const int one = 1;
        setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        setsockopt(b, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        pairs.push_back({a, b});
      } else {
        close(a);
        close(b);
      }
      continue;  // `fds` does not know the new pair.
    }
    if (cut || cut_) continue;
    size_t i = 2;
    for (auto pair = pairs.begin(); pair != pairs.end();) {
      const bool from_a = fds[i++].revents != 0;
      const bool from_b = fds[i++].revents != 0;
      const bool alive =
          (!from_a || Relay(pair->a, pair->b)) && (!from_b || Relay(pair->b, pair->a));
      if (alive) {
        ++pair;
        continue;
      }
      close(pair->a);
      close(pair->b);
      pair = pairs.erase(pair);
    }
  }
  for (const Pair& pair : pairs) {
    close(pair.a);
    close(pair.b);
  }
}

}  // namespace shardline::testing
