// The cable does what the faults of other tests rely on.

#include "tests/e2e/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "gtest/gtest.h"

namespace shardline::testing {
namespace {

constexpr int kPatienceMs = 10'000;
constexpr int kSilenceMs = 150;  // Nothing that would come comes later than this.

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) : fd_(other.fd_) { other.fd_ = -1; }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }

  void Send(const std::string& bytes) {
    SL_CHECK(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
             static_cast<ssize_t>(bytes.size()));
  }
  // What comes next; "" for an end, "reset" for a reset, "silence" for nothing.
  std::string Receive(int wait_ms = kPatienceMs) {
    pollfd readable = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, wait_ms) <= 0) return "silence";
    char bytes[4096];
    const ssize_t count = recv(fd_, bytes, sizeof(bytes), 0);
    if (count < 0) return errno == ECONNRESET ? "reset" : "error";
    return std::string(bytes, static_cast<size_t>(count));
  }

 private:
  int fd_;
};

class TcpProxyTest : public ::testing::Test {
 protected:
  TcpProxyTest() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SL_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    SL_CHECK(listen(listener_, 8) == 0);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    proxy_.SetTarget(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)));
  }
  ~TcpProxyTest() override { close(listener_); }

  Socket Dial() {
    sockaddr_in address{};
    int port = 0;
    SL_CHECK(absl::SimpleAtoi(proxy_.address().substr(10), &port));
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SL_CHECK(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    return Socket(fd);
  }
  Socket Accept() { return Socket(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)); }

  const int listener_;
  TcpProxy proxy_;
};

TEST_F(TcpProxyTest, BytesPassBothWaysAndAnEndIsPassedOn) {
  Socket client = Dial();
  {
    Socket target = Accept();
    client.Send("ping");
    EXPECT_EQ(target.Receive(), "ping");
    target.Send("pong");
    EXPECT_EQ(client.Receive(), "pong");
  }
  EXPECT_EQ(client.Receive(), "");
}

TEST_F(TcpProxyTest, OneDirectionIsCutAndTheOtherWorks) {
  Socket client = Dial();
  Socket target = Accept();
  proxy_.CutOneWay(TcpProxy::Direction::kToTarget);
  target.Send("one");
  EXPECT_EQ(client.Receive(), "one");
  client.Send("held back");
  EXPECT_EQ(target.Receive(kSilenceMs), "silence");
  target.Send("two");
  EXPECT_EQ(client.Receive(), "two");
  proxy_.Mend();
  EXPECT_EQ(target.Receive(), "held back");
}

TEST_F(TcpProxyTest, ACutHidesEvenAnEnd) {
  Socket client = Dial();
  {
    const Socket target = Accept();
    client.Send("x");
    proxy_.Cut();
  }
  EXPECT_EQ(client.Receive(kSilenceMs), "silence");
  proxy_.Mend();
  EXPECT_NE(client.Receive(), "silence");
}

TEST_F(TcpProxyTest, AResetReachesBothEndsAndTheNextConnectionWorks) {
  Socket client = Dial();
  Socket target = Accept();
  client.Send("x");
  EXPECT_EQ(target.Receive(), "x");
  proxy_.Reset();
  EXPECT_EQ(client.Receive(), "reset");
  EXPECT_EQ(target.Receive(), "reset");
  Socket again = Dial();
  Socket accepted = Accept();
  again.Send("y");
  EXPECT_EQ(accepted.Receive(), "y");
}

TEST_F(TcpProxyTest, AResetComesInTheMiddleOfAMessage) {
  Socket client = Dial();
  Socket target = Accept();
  client.Send("abc");
  EXPECT_EQ(target.Receive(), "abc");
  proxy_.ResetAfter(4);
  client.Send("0123456789");
  // A reset may overtake the bytes before it; what follows them never arrives.
  const std::string got = target.Receive();
  EXPECT_TRUE(got == "0123" || got == "reset") << got;
  if (got == "0123") {
    EXPECT_EQ(target.Receive(), "reset");
  }
  EXPECT_EQ(client.Receive(), "reset");
}

TEST_F(TcpProxyTest, BytesAreDelayed) {
  Socket client = Dial();
  Socket target = Accept();
  client.Send("x");
  EXPECT_EQ(target.Receive(), "x");
  constexpr absl::Duration kDelay = absl::Milliseconds(120);
  proxy_.Delay(kDelay);
  const Instant sent = SystemClock()->Now();
  client.Send("y");
  EXPECT_EQ(target.Receive(), "y");
  EXPECT_GE(SystemClock()->Now() - sent, kDelay);
}

}  // namespace
}  // namespace shardline::testing
