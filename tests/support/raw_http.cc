#include "tests/support/raw_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace shardline::testing {

struct RawHttp::Socket {
  ~Socket() {
    SSL_free(ssl);
    SSL_CTX_free(context);
    if (fd >= 0) close(fd);
  }

  int fd = -1;
  SSL_CTX* context = nullptr;
  SSL* ssl = nullptr;
  bool was_reset = false;
};

namespace {

bool ShakeHands(SSL_CTX*& context, SSL*& ssl, int fd, const RawHttp::Options& options) {
  signal(SIGPIPE, SIG_IGN);  // OpenSSL writes plainly.
  context = SSL_CTX_new(TLS_client_method());
  if (options.tls_version_max != 0) {
    SSL_CTX_set_min_proto_version(context, 0);
    SSL_CTX_set_max_proto_version(context,
                                  options.tls_version_max == 11 ? TLS1_1_VERSION : TLS1_2_VERSION);
    SSL_CTX_set_security_level(context, 0);
  }
  if (!options.tls_offer.empty()) {
    SSL_CTX_set_alpn_protos(context,
                            reinterpret_cast<const unsigned char*>(options.tls_offer.data()),
                            static_cast<unsigned>(options.tls_offer.size()));
  }
  ssl = SSL_new(context);
  return SSL_set_fd(ssl, fd) == 1 && SSL_connect(ssl) == 1;
}

}  // namespace

RawHttp::RawHttp(std::unique_ptr<Socket> socket) : socket_(std::move(socket)) {}
RawHttp::RawHttp(RawHttp&&) noexcept = default;
RawHttp& RawHttp::operator=(RawHttp&&) noexcept = default;
RawHttp::~RawHttp() = default;

RawHttp RawHttp::Connect(int port, const Options& options) {
  auto made = std::make_unique<Socket>();
  made->fd = socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience = absl::ToTimeval(kRawPatience);
  setsockopt(made->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(made->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  if (options.receive_buffer > 0) {
    setsockopt(made->fd, SOL_SOCKET, SO_RCVBUF, &options.receive_buffer,
               sizeof(options.receive_buffer));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bool ok = connect(made->fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  if (ok && options.tls) ok = ShakeHands(made->context, made->ssl, made->fd, options);
  return RawHttp(ok ? std::move(made) : nullptr);
}

std::string RawHttp::protocol() const {
  const unsigned char* name = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(socket_->ssl, &name, &size);
  return {reinterpret_cast<const char*>(name), size};
}

bool RawHttp::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = socket_->ssl != nullptr
                             ? SSL_write(socket_->ssl, bytes.data(), static_cast<int>(bytes.size()))
                             : send(socket_->fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void RawHttp::CloseWriting() { shutdown(socket_->fd, SHUT_WR); }

void RawHttp::Close() {
  close(socket_->fd);
  socket_->fd = -1;
}

void RawHttp::Reset() {
  const linger hard = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  Close();
}

bool RawHttp::Fill() {
  std::array<char, 16 * 1024> bytes;
  errno = 0;
  const ssize_t got = socket_->ssl != nullptr
                          ? SSL_read(socket_->ssl, bytes.data(), static_cast<int>(bytes.size()))
                          : recv(socket_->fd, bytes.data(), bytes.size(), 0);
  if (got <= 0) {
    const bool ended =
        socket_->ssl != nullptr
            ? SSL_get_error(socket_->ssl, static_cast<int>(got)) == SSL_ERROR_ZERO_RETURN
            : got == 0;
    socket_->was_reset = !ended;
    return false;
  }
  buffer_.append(bytes.data(), static_cast<size_t>(got));
  return true;
}

std::string RawHttp::Read(size_t bytes) {
  while (buffer_.empty() && Fill()) {
  }
  std::string read = buffer_.substr(0, bytes);
  buffer_.erase(0, bytes);
  return read;
}

std::string RawHttp::ReadUntil(std::string_view text) {
  size_t at = std::string::npos;
  while ((at = buffer_.find(text)) == std::string::npos && Fill()) {
  }
  const size_t end = at == std::string::npos ? buffer_.size() : at + text.size();
  std::string read = buffer_.substr(0, end);
  buffer_.erase(0, end);
  return read;
}

RawAnswer RawHttp::ReadHead() {
  RawAnswer answer;
  const std::string head = ReadUntil("\r\n\r\n");
  const std::vector<std::string> lines = absl::StrSplit(head, "\r\n", absl::SkipEmpty());
  if (lines.empty() || !lines[0].starts_with("HTTP/1.1 ") || lines[0].size() < 12) return answer;
  if (!absl::SimpleAtoi(lines[0].substr(9, 3), &answer.status)) return answer;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<std::string, std::string> field =
        absl::StrSplit(lines[i], absl::MaxSplits(": ", 1));
    answer.headers[absl::AsciiStrToLower(field.first)] = field.second;
  }
  return answer;
}

std::optional<std::string> RawHttp::ReadChunk() {
  const std::string line = ReadUntil("\r\n");
  size_t size = 0;
  const auto parsed = std::from_chars(line.data(), line.data() + line.size(), size, 16);
  if (line.empty() || parsed.ptr != line.data() + line.size() - 2) return std::nullopt;
  while (buffer_.size() < size + 2 && Fill()) {
  }
  if (buffer_.size() < size + 2) return std::nullopt;
  std::string chunk = buffer_.substr(0, size);
  buffer_.erase(0, size + 2);
  return chunk;
}

RawAnswer RawHttp::ReadAnswer(bool has_body) {
  RawAnswer answer = ReadHead();
  if (answer.status == 0) return answer;
  size_t length = 0;
  if (!has_body || answer.status == 204) {
    answer.is_whole = true;
  } else if (answer.headers.contains("transfer-encoding")) {
    for (std::optional<std::string> chunk; (chunk = ReadChunk());) {
      answer.is_whole = chunk->empty();
      if (answer.is_whole) break;
      answer.body += *chunk;
      answer.chunks.push_back(*std::move(chunk));
    }
  } else if (absl::SimpleAtoi(answer.headers["content-length"], &length)) {
    while (buffer_.size() < length && Fill()) {
    }
    answer.body = buffer_.substr(0, length);
    answer.is_whole = answer.body.size() == length;
    buffer_.erase(0, length);
  } else {
    while (Fill()) {
    }
    answer.body = std::exchange(buffer_, {});
    answer.is_whole = !socket_->was_reset;
  }
  return answer;
}

bool RawHttp::AwaitEnd() {
  const bool came = !buffer_.empty() || Fill();
  return !came && !socket_->was_reset;
}

void RawHttp::Drain() {
  while (Fill()) buffer_.clear();
}

}  // namespace shardline::testing
