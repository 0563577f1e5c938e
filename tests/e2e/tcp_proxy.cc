#include "tests/e2e/tcp_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"

namespace shardline::testing {
namespace {

constexpr size_t kQueuedBytesMax = 1 << 20;  // Of one direction of a connection.
constexpr int kToTarget = static_cast<int>(TcpProxy::Direction::kToTarget);
constexpr int kFromTarget = static_cast<int>(TcpProxy::Direction::kFromTarget);

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void MakePrompt(int socket) {
  const int one = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
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
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  SL_CHECK(wake_ >= 0);
  thread_ = std::thread([this] { Run(); });
}

TcpProxy::~TcpProxy() {
  Order([](Orders& orders, int64_t) { orders.stop = true; });
  thread_.join();
  for (const Connection& connection : connections_) Close(connection, /*reset=*/false);
  close(listener_);
  close(wake_);
}

std::string TcpProxy::address() const { return absl::StrCat("127.0.0.1:", port_); }

void TcpProxy::SetTarget(const std::string& address) {
  int port = 0;
  SL_CHECK(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  Order([](Orders& orders, int64_t to) { orders.target_port = static_cast<uint16_t>(to); }, port);
}

void TcpProxy::Cut() {
  Order([](Orders& orders, int64_t) { orders.cut[0] = orders.cut[1] = true; });
}

void TcpProxy::CutOneWay(Direction direction) {
  Order([](Orders& orders, int64_t way) { orders.cut[way] = true; },
        static_cast<int64_t>(direction));
}

void TcpProxy::Mend() {
  Order([](Orders& orders, int64_t) { orders.cut[0] = orders.cut[1] = false; });
}

void TcpProxy::Reset() {
  Order([](Orders& orders, int64_t) { orders.reset = true; });
}

void TcpProxy::ResetAfter(int64_t bytes) {
  Order([](Orders& orders, int64_t after) { orders.reset_after = after; }, bytes);
}

void TcpProxy::Delay(absl::Duration delay) {
  Order([](Orders& orders, int64_t us) { orders.delay = absl::Microseconds(us); },
        absl::ToInt64Microseconds(delay));
}

void TcpProxy::Order(void (*change)(Orders&, int64_t), int64_t argument) {
  {
    absl::MutexLock lock(&mu_);
    change(orders_, argument);
  }
  const uint64_t one = 1;
  SL_CHECK(write(wake_, &one, sizeof(one)) == sizeof(one));
}

TcpProxy::Orders TcpProxy::TakeOrders() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = read(wake_, &count, sizeof(count));
  absl::MutexLock lock(&mu_);
  const Orders orders = orders_;
  orders_.reset = false;
  orders_.reset_after = -1;
  return orders;
}

void TcpProxy::Run() {
  while (true) {
    std::vector<pollfd> fds = Interests(SystemClock()->Now());
    poll(fds.data(), fds.size(), WaitMs(SystemClock()->Now()));
    // Taken after the wait: what was ordered before some bytes were sent holds for them.
    const Orders orders = TakeOrders();
    if (orders.stop) return;
    std::copy(std::begin(orders.cut), std::end(orders.cut), std::begin(cut_));
    delay_ = orders.delay;
    if (orders.reset_after >= 0) reset_after_ = orders.reset_after;
    if (orders.reset) {
      for (const Connection& connection : connections_) Close(connection, /*reset=*/true);
      connections_.clear();
    }
    size_t i = 2;
    for (auto connection = connections_.begin(); connection != connections_.end(); i += 2) {
      if (Move(*connection, fds[i].revents, fds[i + 1].revents, SystemClock()->Now())) {
        ++connection;
      } else {
        connection = connections_.erase(connection);
      }
    }
    if (fds[1].revents != 0) Accept(orders.target_port);
  }
}

std::vector<pollfd> TcpProxy::Interests(Instant now) const {
  std::vector<pollfd> fds = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
  for (const Connection& connection : connections_) {
    short client = 0;
    short target = 0;
    if (!cut_[kToTarget]) {
      client |= ReadEvents(connection.flows[kToTarget]);
      target |= WriteEvents(connection.flows[kToTarget], now);
    }
    if (!cut_[kFromTarget]) {
      target |= ReadEvents(connection.flows[kFromTarget]);
      client |= WriteEvents(connection.flows[kFromTarget], now);
    }
    // A socket that nothing is wanted of is not asked: it would tell of hang-ups for ever.
    fds.push_back({client != 0 ? connection.client : -1, client, 0});
    fds.push_back({target != 0 ? connection.target : -1, target, 0});
  }
  return fds;
}

void TcpProxy::Accept(uint16_t target_port) {
  Connection connection;
  connection.client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection.client < 0) return;
  connection.target = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in target = Loopback(target_port);
  if (connect(connection.target, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) != 0) {
    Close(connection, /*reset=*/true);
    return;
  }
  MakePrompt(connection.client);
  MakePrompt(connection.target);
  connection.flows[kToTarget] = {.from = connection.client, .to = connection.target};
  connection.flows[kFromTarget] = {.from = connection.target, .to = connection.client};
  connections_.push_back(std::move(connection));
}

short TcpProxy::ReadEvents(const Flow& flow) {
  return !flow.ended && flow.queued_bytes < kQueuedBytesMax ? POLLIN : 0;
}

short TcpProxy::WriteEvents(const Flow& flow, Instant now) {
  return !flow.chunks.empty() && flow.chunks.front().due <= now ? POLLOUT : 0;
}

bool TcpProxy::Move(Connection& connection, short client_events, short target_events, Instant now) {
  constexpr short kReadable = POLLIN | POLLHUP | POLLERR;
  bool ok = true;
  for (const int way : {kToTarget, kFromTarget}) {
    Flow& flow = connection.flows[way];
    const short from_events = way == kToTarget ? client_events : target_events;
    if (cut_[way]) continue;
    if (ok && (from_events & kReadable) != 0 && ReadEvents(flow) != 0) ok = Read(flow, now);
    if (ok) ok = Write(flow, way == kToTarget, now);
    // Half of a connection is of no use to gRPC: once one end has left and was heard, it is over.
    if (ok && flow.ended && flow.chunks.empty()) {
      Close(connection, /*reset=*/false);
      return false;
    }
  }
  if (!ok) Close(connection, /*reset=*/true);
  return ok;
}

bool TcpProxy::Read(Flow& flow, Instant now) {
  char bytes[65536];
  const ssize_t count = recv(flow.from, bytes, sizeof(bytes), 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) {
    flow.ended = true;
    return true;
  }
  flow.queued_bytes += static_cast<size_t>(count);
  flow.chunks.push_back(
      {.bytes = std::string(bytes, static_cast<size_t>(count)), .sent = 0, .due = now + delay_});
  return true;
}

bool TcpProxy::Write(Flow& flow, bool to_target, Instant now) {
  while (!flow.chunks.empty() && flow.chunks.front().due <= now) {
    Chunk& chunk = flow.chunks.front();
    size_t wanted = chunk.bytes.size() - chunk.sent;
    const bool last =
        to_target && reset_after_ >= 0 && reset_after_ <= static_cast<int64_t>(wanted);
    if (last) wanted = static_cast<size_t>(reset_after_);
    const ssize_t count = send(flow.to, chunk.bytes.data() + chunk.sent, wanted, MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    chunk.sent += static_cast<size_t>(count);
    flow.queued_bytes -= static_cast<size_t>(count);
    if (to_target && reset_after_ >= 0) reset_after_ -= count;
    if (last && reset_after_ == 0) {
      reset_after_ = -1;
      return false;
    }
    if (chunk.sent < chunk.bytes.size()) return true;
    flow.chunks.pop_front();
  }
  return true;
}

void TcpProxy::Close(const Connection& connection, bool reset) {
  for (const int socket : {connection.client, connection.target}) {
    if (socket < 0) continue;
    const linger abrupt = {.l_onoff = reset ? 1 : 0, .l_linger = 0};
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &abrupt, sizeof(abrupt));
    close(socket);
  }
}

int TcpProxy::WaitMs(Instant now) const {
  Instant due = Instant::InfiniteFuture();
  for (const Connection& connection : connections_) {
    for (const int way : {kToTarget, kFromTarget}) {
      const Flow& flow = connection.flows[way];
      if (cut_[way] || flow.chunks.empty() || flow.chunks.front().due <= now) continue;
      due = std::min(due, flow.chunks.front().due);
    }
  }
  if (due == Instant::InfiniteFuture()) return -1;
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(due - now, absl::Milliseconds(1))));
}

}  // namespace shardline::testing
